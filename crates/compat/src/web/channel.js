// WebRTC data channels, whose datagrams are neither repeated nor put in order: one to the server, as a
// probe that is lost is lost, and one from this device to itself.

// `?probes=fetch` wants no channel, `?probes=channel` waits for one as long as it takes.
const WANTED = new URLSearchParams(location.search).get("probes");
const OPENS_MS = WANTED === "channel" ? 60000 : 3000;
const OPTIONS = { negotiated: true, id: 0, ordered: false, maxRetransmits: 0 };

// The peer of a channel that is open, or why none opened in time. `take` gets the channel at once, as
// a worker can be given none that is older, and tells when it is open, or fails when it is closed.
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
    const why = signal.aborted ? `it took longer than ${OPENS_MS / 1000} s` : "it closed";
    return { why: (!signal.aborted && error?.message) || why };
  }
}

// Both peers of a channel over this device's own addresses, which opens or does not: of its datagrams
// all that takes time is this device. `take` gets both ends at once.
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
