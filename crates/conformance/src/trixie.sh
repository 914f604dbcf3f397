# trixie.sh MIRROR DIRECTORY: unpacks packages of Debian 13 into the directory.
set -eu
into=$2
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
mkdir -p "$own/lists/partial" "$own/cache/archives/partial" "$own/debs"
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$key] $1 trixie main" >"$own/list"
options="-o Dir::Etc::sourcelist=$own/list -o Dir::Etc::sourceparts=/dev/null"
options="$options -o Dir::State::lists=$own/lists -o Dir::Cache=$own/cache -o APT::Sandbox::User=root"
# shellcheck disable=SC2086  # lists of words
apt-get $options -qq update
# shellcheck disable=SC2086
kernel=$(apt-cache $options depends --important linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
# shellcheck disable=SC2086
packages=$(apt-cache $options depends --recurse --important ktls-utils | grep '^[a-z]' | sort -u)
cd "$own/debs"
# shellcheck disable=SC2086
apt-get $options -qq download $kernel $packages
for package in *.deb; do
    dpkg-deb -x "$package" "$into"
done
