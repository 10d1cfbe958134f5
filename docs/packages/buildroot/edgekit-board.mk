################################################################################
#
# edgekit-board
#
################################################################################

EDGEKIT_BOARD_VERSION = 0.1.0
# Made by: scripts/board-package FOLDER
EDGEKIT_BOARD_SITE = $(EDGEKIT_BOARD_PKGDIR)
EDGEKIT_BOARD_SITE_METHOD = file
EDGEKIT_BOARD_STRIP_COMPONENTS = 0
EDGEKIT_BOARD_LICENSE = Apache-2.0

define EDGEKIT_BOARD_INSTALL_TARGET_CMDS
	$(MAKE) -C $(@D) install DESTDIR=$(TARGET_DIR)
endef

$(eval $(generic-package))
