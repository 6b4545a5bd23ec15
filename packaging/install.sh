#!/bin/sh
# Installs underload on Linux: curl -fsS URL/install.sh | sh
#
#   sh -s -- NAME...    other programs: underload-fleet, underload-agent, underload-measuring (small)
#   PREFIX              default: /usr/local for root, ~/.local for others
#   UNDERLOAD_URL       another folder that `packaging/site` made
#   UNDERLOAD_KEY       SSH public key that must have signed the checksums; default: the folder's key
#   UNDERLOAD_PATIENCE  seconds without a byte after which a download ends; default: 20
#
# The shell reads the whole file before it runs `main`: half a download does nothing.
set -u

# `packaging/site` writes its address and its public key here.
site=https://github.com/underload/underload/releases/latest/download
site_key=

work="" new="" existing="" folder=""

# Removes what is unfinished, also directories that were made for it.
clean() {
    [ -z "$work" ] || rm -rf "$work"
    [ -z "$new" ] || rm -f "$new"
    while [ -n "$existing" ] && [ "$folder" != "$existing" ] && rmdir "$folder" 2>/dev/null; do
        folder=$(dirname "$folder")
    done
}
refuse() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

# Prints the machine's kind as names of files have it.
machine() {
    system=$(uname -s) kind=$(uname -m)
    [ "$system" = Linux ] \
        || refuse "there is no program for $system; build it from source (docs/install.md)"
    case "$kind" in
    x86_64 | amd64) echo x86_64 ;;
    aarch64 | arm64) echo aarch64 ;;
    armv7* | armv8l) echo armv7 ;;
    *) refuse "there is no program for $kind; there are x86_64, aarch64 and armv7" ;;
    esac
}

# Downloads a file of the site into $work.
download() { # FILE
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --connect-timeout "$patience" --speed-limit 1 --speed-time "$patience" \
            -o "$work/$1" "$url/$1" 2>"$work/said"
    elif command -v wget >/dev/null 2>&1; then
        # BusyBox 1.35 of Debian crashes when it is given a timeout.
        limit=""
        if wget --version 2>/dev/null | grep -q GNU; then limit="--timeout=$patience --tries=1"; fi
        # shellcheck disable=SC2086 # options, or none
        wget $limit -O "$work/$1" "$url/$1" 2>"$work/said"
    else
        refuse "neither curl nor wget is installed"
    fi && return
    said=$(grep . "$work/said" 2>/dev/null | tail -n 1)
    refuse "$url/$1 could not be downloaded into ${TMPDIR:-/tmp} (${said:-the disk is full})"
}

# Prints the SHA-256 of a file in hexadecimal digits.
sha256() { # FILE
    if command -v sha256sum >/dev/null 2>&1; then sha256sum <"$1"
    elif command -v shasum >/dev/null 2>&1; then shasum -a 256 <"$1"
    else openssl dgst -sha256 -r <"$1"
    fi 2>/dev/null | cut -d ' ' -f 1
}

# Checks the signature of the checksums, and prints how they were checked.
check_signature() {
    if [ -z "$key" ]; then
        echo "SHA-256, not signed: this detects damage, but trusts $url"
    elif ! command -v ssh-keygen >/dev/null 2>&1; then
        [ -z "${UNDERLOAD_KEY-}" ] \
            || refuse "ssh-keygen is missing (package openssh-client), so UNDERLOAD_KEY cannot be checked"
        echo "SHA-256; its signature was not checked, because ssh-keygen is missing"
    else
        download SHA256SUMS.sig || exit 1
        printf 'underload %s\n' "$key" >"$work/signers"
        ssh-keygen -Y verify -f "$work/signers" -I underload -n underload -s "$work/SHA256SUMS.sig" \
            <"$work/SHA256SUMS" >/dev/null 2>&1 \
            || refuse "$url/SHA256SUMS is not signed by the expected key"
        echo "SHA-256, signed by $(printf '%.40s' "$key")..."
    fi
}

install_program() { # NAME
    archive="$1-$machine-linux.tar.gz" program=${1%-measuring}
    sum=$(awk -v name="$archive" '$2 == name { print $1 }' "$work/SHA256SUMS")
    [ -n "$sum" ] || refuse "$url has no $1 for $machine: SHA256SUMS does not name $archive"
    download "$archive"
    [ "$(sha256 "$work/$archive")" = "$sum" ] \
        || refuse "$archive has another SHA-256 than SHA256SUMS has: it is damaged or was replaced"

    folder=$bin existing=$bin
    while [ ! -d "$existing" ]; do existing=$(dirname "$existing"); done
    mkdir -p "$bin" 2>/dev/null || refuse "$bin cannot be made; PREFIX names another directory"
    new="$bin/.$program.$$"
    { tar -xzOf "$work/$archive" "$1-$machine-linux/$program" >"$new" && chmod 755 "$new"; } 2>/dev/null \
        || refuse "$program cannot be written to $bin: no permission, or the disk is full"
    version=$("$new" --version 2>/dev/null) \
        || refuse "the $program of $archive does not run on this machine"
    verb=installed
    [ ! -e "$bin/$program" ] || verb=replaced
    mv -f "$new" "$bin/$program" || refuse "$bin/$program cannot be replaced"
    new="" existing=""
    printf '%s is %s: %s\n' "$version" "$verb" "$bin/$program"
    printf '  from     %s\n  checked  %s\n  undo     rm %s\n' "$url/$archive" "$checked" "$bin/$program"
}

main() {
    url=${UNDERLOAD_URL:-$site} key=${UNDERLOAD_KEY:-$site_key} patience=${UNDERLOAD_PATIENCE:-20}
    if [ -z "${PREFIX-}" ]; then
        PREFIX=${HOME:-/root}/.local
        [ "$(id -u)" != 0 ] || PREFIX=/usr/local
    fi
    bin=$PREFIX/bin
    trap clean EXIT
    trap 'exit 1' HUP INT TERM
    machine=$(machine) || exit 1
    command -v sha256sum >/dev/null 2>&1 || command -v shasum >/dev/null 2>&1 \
        || command -v openssl >/dev/null 2>&1 \
        || refuse "none of sha256sum, shasum and openssl is installed, so no download can be checked"
    work=$(mktemp -d "${TMPDIR:-/tmp}/underload.XXXXXX" 2>/dev/null) \
        || refuse "${TMPDIR:-/tmp} cannot be written; TMPDIR names another directory"
    download SHA256SUMS
    checked=$(check_signature) || exit 1
    for name in "${@:-underload}"; do install_program "$name"; done
    case ":$PATH:" in
    *":$bin:"*) ;;
    *) echo "  path     export PATH=\"$bin:\$PATH\"" ;;
    esac
}

main "$@"
