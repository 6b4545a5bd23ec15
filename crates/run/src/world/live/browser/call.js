// Sets up one page of a call; `sends` says whether the page sends picture and sound. Defines `call`,
// `describe`, `limitVideo` and `readStatistics`, which the program calls to connect two pages.
async (sends) => {
    // Two browsers encode and decode on one machine: a larger picture would need faster processors.
    const picture = { width: 640, height: 360, frameRate: 30 };
    const media = await navigator.mediaDevices.getUserMedia({ audio: true, video: picture });
    const call = globalThis.call = new RTCPeerConnection({ encodedInsertableStreams: true });
    const frames = { sent: [], received: [] };

    // Notes when each frame passes, between encoder and network or network and de-jitter buffer.
    const noteFrames = (end, list) => {
        const { readable, writable } = end.createEncodedStreams();
        const noting = new TransformStream({
            transform(frame, next) {
                list?.push([frame.getMetadata().rtpTimestamp, Date.now()]);
                next.enqueue(frame);
            },
        });
        readable.pipeThrough(noting).pipeTo(writable);
    };

    call.ontrack = ({ track, streams, receiver }) => {
        noteFrames(receiver, track.kind === 'video' ? frames.received : null);
        if (track.kind !== 'video') return;
        // Without a player the video would not be decoded.
        const player = document.createElement('video');
        Object.assign(player, { srcObject: streams[0], muted: true, autoplay: true });
        document.body.append(player);
    };
    for (const track of media.getTracks()) {
        if (sends) noteFrames(call.addTrack(track, media), track.kind === 'video' ? frames.sent : null);
        // A page with the permission for the camera puts its real addresses into its candidates,
        // also after it has stopped the camera.
        else track.stop();
    }

    globalThis.describe = async () => {
        await call.setLocalDescription();
        while (call.iceGatheringState !== 'complete') {
            await new Promise((resolve) => setTimeout(resolve, 10));
        }
        return call.localDescription.toJSON();
    };

    globalThis.limitVideo = async (bitsPerSecond) => {
        for (const sender of call.getSenders().filter(({ track }) => track?.kind === 'video')) {
            const parameters = sender.getParameters();
            for (const encoding of parameters.encodings) encoding.maxBitrate = bitsPerSecond;
            await sender.setParameters(parameters);
        }
    };

    globalThis.readStatistics = async () => {
        const stats = { at: performance.now() };
        for (const part of (await call.getStats()).values()) {
            if (part.availableOutgoingBitrate !== undefined) {
                stats.availableOutgoingBitrate = part.availableOutgoingBitrate;
            }
            if (part.kind !== 'video') continue;
            if (part.type === 'inbound-rtp') Object.assign(stats, part);
            if (part.type === 'remote-inbound-rtp') stats.roundTripTime = part.roundTripTime;
            if (part.type === 'outbound-rtp') stats.cpuLimited = part.qualityLimitationDurations.cpu;
        }
        stats.framesSent = frames.sent.splice(0);
        stats.framesReceived = frames.received.splice(0);
        return stats;
    };
}
