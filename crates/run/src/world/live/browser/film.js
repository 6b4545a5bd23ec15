// A player of films, as a function of the flow's settings. It defines `play` and `report`, and
// returns the version of dash.js; null if the script that was loaded before it was not dash.js.
({ player, bufferSeconds, lowestKilobits }) => {
    const dash = globalThis.dashjs?.MediaPlayer?.().create();
    if (!dash) return null;
    const film = { player: dash.getVersion(), startup: null, stalls: 0, stalled: 0, error: null };
    Object.assign(film, { chunks: [], states: [] });
    const picture = document.createElement('video');
    picture.muted = true;
    document.body.append(picture);
    let begun = 0;
    let stalledSince = null;
    let clock;
    const now = () => performance.now() - begun;

    const endStall = () => {
        if (stalledSince !== null) film.stalled += now() - stalledSince;
        stalledSince = null;
    };
    picture.addEventListener('waiting', () => {
        if (film.startup === null || stalledSince !== null) return;
        stalledSince = now();
        film.stalls += 1;
    });
    picture.addEventListener('playing', () => {
        film.startup ??= now();
        endStall();
    });
    dash.on('error', ({ error }) => film.error ??= `${error?.code} ${error?.message}`);
    dash.on('fragmentLoadingCompleted', ({ request, error }) => {
        if (request.type !== 'MediaSegment' || error) return;
        const at = (date) => date.getTime() - performance.timeOrigin - begun;
        film.chunks.push({
            number: request.index, level: Number(request.representation.id),
            bytes: request.bytesLoaded, requested: at(request.startDate), arrived: at(request.endDate),
        });
    });

    const rules = player === 'dynamic' ? {} : {
        bolaRule: { active: player === 'bola' },
        throughputRule: { active: player === 'throughput' },
    };
    const buffer = {
        bufferTimeDefault: bufferSeconds, bufferTimeAtTopQuality: bufferSeconds,
        bufferTimeAtTopQualityLongForm: bufferSeconds,
    };
    const abr = { rules, initialBitrate: { video: lowestKilobits } };
    dash.updateSettings({ streaming: { buffer, abr } });

    globalThis.play = (address) => {
        begun = performance.now();
        clock = setInterval(() => film.states.push({
            at: now(), buffer: dash.getBufferLength('video') || 0,
            throughput: dash.getAverageThroughput('video') || null,
        }), 1000);
        dash.initialize(picture, address, true);
    };
    globalThis.report = () => {
        endStall();
        clearInterval(clock);
        dash.reset();
        return film;
    };
    return film.player;
}
