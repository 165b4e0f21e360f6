# inboxd - build, test, install.  GNU make and pkg-config; no configure.  `make help` lists the targets.
#
# User flags (CFLAGS, CPPFLAGS, LDFLAGS) are the user's: ours stand apart and in front.

VARIANT ?= release
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
LIBDIR ?= $(PREFIX)/lib
UNITDIR ?= $(LIBDIR)/systemd/system
HANDLERDIR ?= $(LIBDIR)/inboxd/handlers
VERSION := $(shell sed -n 's/^\#define INBOXD_VERSION "\(.*\)"/\1/p' src/base/version.h)

B := build/$(VARIANT)
PKGS := librabbitmq libpq yaml-0.1 libsystemd libcrypto
PKG_CONFIG ?= pkg-config
CC ?= cc

# ---- flags -----------------------------------------------------------------------------------
CFLAGS ?=
CPPFLAGS ?=
LDFLAGS ?=

WARNINGS := -Wall -Wextra
WARNINGS += -Wshadow # a name means one thing in one place
WARNINGS += -Wconversion -Wno-sign-conversion # lengths do not shrink unnoticed
WARNINGS += -Wstrict-prototypes -Wmissing-prototypes # what is not static is declared in a header
WARNINGS += -Wwrite-strings -Wcast-qual # const stays const
WARNINGS += -Wpointer-arith -Wundef -Wvla # no arithmetic on void, no misspelt macro, no unbounded stack
WARNINGS += -Wformat=2 # no format from outside
WARNINGS += -Wnull-dereference -Wdouble-promotion # what the optimiser sees; floats stay floats
WARNINGS += -Wimplicit-fallthrough -Wswitch-enum # every verdict is handled, or said to be left out
WARNINGS += -Wno-missing-field-initializers # {0} and designated initialisers leave the rest zero
ifdef WERROR
WARNINGS += -Werror
endif

HARDENING := -fstack-protector-strong -fstack-clash-protection -fPIE
ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
HARDENING += -fcf-protection
endif
HARDENING_LD := -pie -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--as-needed

MODE_release := -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
MODE_debug := -O0 -g3
MODE_asan := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
MODE_tsan := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
MODE_cov := -O0 -g --coverage
MODE_faults := -O1 -g -DINBOXD_FAULTS
MODE := $(MODE_$(VARIANT))
ifeq ($(MODE),)
$(error VARIANT is one of release debug asan tsan cov faults, not "$(VARIANT)")
endif

PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null)
CHECK_LIBS = $(shell $(PKG_CONFIG) --libs check)

OUR_CPPFLAGS := -D_GNU_SOURCE -Isrc -Isrc/handler -Itests/unit \
  -DINBOXD_SYSCONFDIR='"$(SYSCONFDIR)"' -DINBOXD_HANDLERDIR='"$(HANDLERDIR)"'
OUR_CFLAGS := -std=gnu11 $(WARNINGS) $(MODE) $(HARDENING) $(PKG_CFLAGS)
OUR_LDFLAGS := $(filter -O% -g -f%sanitize% --coverage,$(MODE)) $(HARDENING_LD)
COMPILE = $(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) $(OUR_CFLAGS) $(CFLAGS) -MMD -MP

# ---- what is built ---------------------------------------------------------------------------
ROOMS := base message config ipc mq db inbox handler
ROLES := supervisor consumer worker
LIB_SRC := $(wildcard $(ROOMS:%=src/%/*.c))
ROLE_SRC := $(wildcard $(ROLES:%=src/%/*.c))
CTL_SRC := $(wildcard src/ctl/*.c)
HANDLER_SRC := $(wildcard src/handlers/*.c)
SQL := $(sort $(wildcard sql/*.sql))

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB := $(B)/libinboxd.a
ROLE_LIB := $(B)/libroles.a
HANDLERS := $(HANDLER_SRC:src/handlers/%.c=$(B)/handlers/%.so)

all: $(B)/inboxd $(B)/inboxctl $(HANDLERS)

$(LIB): $(call obj,$(LIB_SRC))
$(ROLE_LIB): $(call obj,$(ROLE_SRC))
$(LIB) $(ROLE_LIB):
	@rm -f $@
	@$(AR) rcs $@ $^

$(B)/inboxd: $(call obj,src/main.c) $(ROLE_LIB) $(LIB)
	$(CC) $(OUR_LDFLAGS) $(LDFLAGS) -o $@ $^ $(PKG_LIBS) -ldl

$(B)/inboxctl: $(call obj,$(CTL_SRC)) $(LIB)
	$(CC) $(OUR_LDFLAGS) $(LDFLAGS) -o $@ $^ $(PKG_LIBS) -ldl

$(B)/obj/%.o: %.c Makefile | deps-present
	@mkdir -p $(@D)
	$(COMPILE) -c -o $@ $<

# Handlers see the public header and nothing else of ours.
$(B)/handlers/%.so: src/handlers/%.c Makefile | deps-present
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -Isrc/handler $(CPPFLAGS) -std=gnu11 $(WARNINGS) $(filter-out -fsanitize% -fno-sanitize%,$(MODE)) -fstack-protector-strong \
	  -fPIC -fvisibility=hidden $(shell $(PKG_CONFIG) --cflags libpq) $(CFLAGS) -MMD -MP -shared -Wl,-z,relro,-z,now $(LDFLAGS) -o $@ $<

# The migrations travel inside the programs.
$(call obj,src/db/migrations.c): $(SQL)

deps-present:
	@$(PKG_CONFIG) --exists $(PKGS) || { echo "missing libraries; see README" >&2; exit 1; }
.PHONY: deps-present

# ---- tests -----------------------------------------------------------------------------------
UNIT_SRC := $(wildcard tests/unit/*.c tests/unit/*/*.c)
INTEGRATION_SRC := $(wildcard tests/integration/*.c)
TEST_HANDLERS := $(patsubst tests/handlers/%.c,$(B)/tests/handlers/%.so,$(wildcard tests/handlers/*.c))

$(B)/tests/unit: $(call obj,$(UNIT_SRC)) $(ROLE_LIB) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(OUR_LDFLAGS) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(PKG_LIBS) -ldl -lm

$(B)/tests/integration: $(call obj,$(INTEGRATION_SRC)) $(LIB)
	@mkdir -p $(@D)
	$(CC) $(OUR_LDFLAGS) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(PKG_LIBS) -ldl -lm

$(B)/tests/handlers/%.so: tests/handlers/%.c Makefile
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -Isrc/handler -std=gnu11 -g -O1 -fPIC $(shell $(PKG_CONFIG) --cflags libpq) -MMD -MP -shared -o $@ $<

check-unit: $(B)/tests/unit
	$(B)/tests/unit

-include $(shell find build -name '*.d' 2>/dev/null)
.DEFAULT_GOAL := all
.PHONY: all check check-unit
