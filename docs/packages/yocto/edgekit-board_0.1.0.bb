SUMMARY = "Board's side of edgekit, which deploys models to small boards"
DESCRIPTION = "Shows, verifies, rolls back and fetches releases of models for boards in service."
SECTION = "devel"
CVE_PRODUCT = "edgekit-board"
LICENSE = "Apache-2.0"
LIC_FILES_CHKSUM = "file://${COMMON_LICENSE_DIR}/Apache-2.0;md5=89aea4e17d99a7cacdbeed46a0096b10"

# Made by: scripts/board-package FOLDER; put the archive next to this recipe.
SRC_URI = "file://edgekit-board-${PV}.tar.gz;subdir=${BP}"

inherit allarch

do_configure[noexec] = "1"
do_compile[noexec] = "1"

do_install() {
    oe_runmake install DESTDIR=${D}
}

FILES:${PN} += "${nonarch_libdir}/edgekit-board"

# Modules of Python's standard library that the runtime imports, and ssh-keygen.
RDEPENDS:${PN} = "openssh-keygen \
                  python3-compression \
                  python3-core \
                  python3-crypt \
                  python3-ctypes \
                  python3-datetime \
                  python3-io \
                  python3-json \
                  python3-logging \
                  python3-math \
                  python3-mmap \
                  python3-netclient \
                  python3-shell \
                  python3-threading"
RRECOMMENDS:${PN} = "python3-numpy"
