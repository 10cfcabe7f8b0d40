# Sourced by what measures on a bare Debian 12 (demo_cold, install_cold):
#   clean_debian FOLDER PACKAGES   makes one in FOLDER/debian by debootstrap; its packages come from where this machine's
#                                  apt gets them. Only root can, and debootstrap has to be installed: exits with 2
#   in_debian COMMAND ...          runs a command in it, on the first two cores and with a small environment
#   leave_debian FOLDER [KEEP]     unmounts what was mounted there, and removes FOLDER unless KEEP is set; for a trap
# shellcheck shell=bash
debian_mounted=()

clean_debian() {
  ((EUID == 0)) || { echo "$(basename "$0"): only root can make a chroot" >&2; exit 2; }
  command -v debootstrap >/dev/null || { echo "$(basename "$0"): apt-get install debootstrap" >&2; exit 2; }
  debian=$1/debian
  local mirror part
  mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Codename: bookworm' 2>/dev/null | head -1)
  debootstrap --variant=minbase --include="$2" bookworm "$debian" ${mirror:+"$mirror"} >/dev/null
  rm -f "$debian/etc/apt/sources.list"
  for part in sources.list sources.list.d apt.conf.d trusted.gpg.d preferences.d; do  # no auth.conf.d: nothing secret
    if [[ -e /etc/apt/$part ]]; then cp -a "/etc/apt/$part" "$debian/etc/apt/"; fi
  done
  cp -a /usr/share/keyrings/. "$debian/usr/share/keyrings/"
  cp -a /etc/ssl/certs/. "$debian/etc/ssl/certs/"
  cp -L /etc/resolv.conf /etc/hosts "$debian/etc/"
  mount -t proc proc "$debian/proc" && debian_mounted+=("$debian/proc")
  mount --bind /dev "$debian/dev" && debian_mounted+=("$debian/dev")
}

in_debian() {
  taskset -c 0,1 env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    ${http_proxy:+http_proxy=$http_proxy} ${https_proxy:+https_proxy=$https_proxy} ${PIP_CERT:+PIP_CERT=$PIP_CERT} \
    chroot "$debian" "$@"
}

leave_debian() {
  local place
  for place in "${debian_mounted[@]}"; do umount -l "$place"; done
  # What is still mounted there, by us or by hand, is not to be emptied: --one-file-system does not notice a folder of the
  # same disk.
  if [[ -z ${2-} ]] && ! grep -qF " $1/" /proc/self/mounts; then rm -rf --one-file-system "$1"; fi
}
