// Opens unreliable, unordered WebRTC data channels: one to the server, where a lost probe must not
// be retransmitted, and one from this device to itself.

// `?probes=fetch` measures without a channel; `?probes=channel` waits up to a minute for one.
const WANTED = new URLSearchParams(location.search).get("probes");
const OPENS_MS = WANTED === "channel" ? 60000 : 3000;
const OPTIONS = { negotiated: true, id: 0, ordered: false, maxRetransmits: 0 };

// Returns `peer` once the channel is open, or `why` it did not open in time. `take` receives the
// channel at once, because browsers transfer only new channels to a worker; its promise resolves
// when the channel opens and rejects when it closes.
export async function openChannel(take) {
  if (WANTED === "fetch") return { why: "as the address asks" };
  if (!window.RTCPeerConnection) return { why: "this browser has none" };
  const peer = new RTCPeerConnection();
  const opened = take(peer.createDataChannel("probes", OPTIONS));
  const signal = AbortSignal.timeout(OPENS_MS);
  const late = new Promise((_, failed) => { signal.onabort = failed; });
  for (const end of [opened, late]) end.catch(() => {});
  try {
    await peer.setLocalDescription();
    const answer = await fetch("channel", { method: "POST", body: peer.localDescription.sdp, signal });
    if (answer.status === 204) throw new Error("the server has none");
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    await Promise.race([opened, late]);
    return { peer };
  } catch (error) {
    peer.close();
    const why = signal.aborted ? `no answer within ${OPENS_MS / 1000} s` : "it closed";
    return { why: (!signal.aborted && error?.message) || why };
  }
}

// Connects a channel from this device to itself: the round trips of its datagrams are the delay of
// this device alone. Returns both peers; the channel may fail to open. `take` receives both ends at
// once.
export function openMirror(take) {
  const peers = [new RTCPeerConnection(), new RTCPeerConnection()];
  const [near, far] = peers;
  take(peers.map((peer) => peer.createDataChannel("mirror", OPTIONS)));
  for (const [from, to] of [[near, far], [far, near]]) {
    from.onicecandidate = ({ candidate }) => { if (candidate) to.addIceCandidate(candidate).catch(() => {}); };
  }
  const agree = async () => {
    await near.setLocalDescription();
    await far.setRemoteDescription(near.localDescription);
    await far.setLocalDescription();
    await near.setRemoteDescription(far.localDescription);
  };
  agree().catch(() => {});
  return peers;
}
