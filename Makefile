# SPDX-License-Identifier: MIT
# inboxd - build, test, install.  GNU make and pkg-config, no configure.  `make help` lists everything.
#
# CFLAGS, CPPFLAGS and LDFLAGS belong to the user: ours stand apart and in front of them.

VARIANT ?= release
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
BINDIR ?= $(PREFIX)/bin
SBINDIR ?= $(PREFIX)/sbin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DOCDIR ?= $(PREFIX)/share/doc/inboxd
PKGCONFIGDIR ?= $(LIBDIR)/pkgconfig
HANDLERDIR ?= $(LIBDIR)/inboxd/handlers
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d

B := build/$(VARIANT)
PKG_CONFIG ?= pkg-config
INSTALL ?= install
CLANG ?= clang
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy
CPPCHECK ?= cppcheck
SHELLCHECK ?= shellcheck

# V=1 shows whole commands; otherwise a short line for each file made.
ifdef V
Q :=
say :=
else
Q := @
say = @printf '  %-4s %s\n' $(1) $@
endif

# "0.1.0" as src/base/version.h has it, without a shell.
VERSION := $(patsubst "%",%,$(filter "%",$(file <src/base/version.h)))

# $(call once,NAME,COMMAND): a variable that runs its command when first used and keeps the answer, so
# that `make help` runs none, and the libraries that `make check` has just installed are seen.
once = $(eval $(1) = $$(eval $(1) := $$(shell $(2)))$$($(1)))

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

# Control-flow protection is a feature of x86 processors; elsewhere gcc refuses the option.
$(call once,CF_PROTECTION,$(CC) -dumpmachine 2>/dev/null | sed -n 's/^x86_64.*/-fcf-protection/p')
HARDENING := -fstack-protector-strong -fstack-clash-protection
HARDENING_LD := -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--as-needed

MODE_release := -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
MODE_debug := -O0 -g3
MODE_asan := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
MODE_tsan := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
MODE_cov := -O0 -g --coverage
MODE_faults := -O1 -g -DINBOXD_FAULTS
MODE_fuzz := $(MODE_asan) -fsanitize=fuzzer-no-link
MODE := $(MODE_$(VARIANT))
ifeq ($(MODE),)
$(error VARIANT is one of release debug asan tsan cov faults fuzz, not "$(VARIANT)")
endif

PKGS := librabbitmq libpq yaml-0.1 libsystemd libssl libcrypto
$(call once,PKG_CFLAGS,$(PKG_CONFIG) --cflags $(PKGS))
$(call once,PKG_LIBS,$(PKG_CONFIG) --libs $(PKGS))
$(call once,PQ_CFLAGS,$(PKG_CONFIG) --cflags libpq)
$(call once,CHECK_LIBS,$(PKG_CONFIG) --libs check)

OUR_CPPFLAGS := -D_GNU_SOURCE -Isrc -Isrc/handler -Itests/unit -I$(B)/gen
# uthash's default falls through in a way that clang warns about.
OUR_CPPFLAGS += -DHASH_FUNCTION=HASH_FNV
OUR_CFLAGS = -std=gnu11 $(WARNINGS) $(MODE) $(HARDENING) $(CF_PROTECTION) -fPIE $(PKG_CFLAGS)
OUR_LDFLAGS := $(filter -O% -g -f%sanitize% -fsanitize% --coverage,$(MODE)) -pie $(HARDENING_LD)
COMPILE = $(CC) $(OUR_CPPFLAGS) $(OUR_CFLAGS) $(CPPFLAGS) $(CFLAGS) -MMD -MP

# Handlers see the public header and nothing else of ours.  They are compiled without sanitizers, as
# those of other people are.
PLUGIN_MODE := $(filter-out -fsanitize% -fno-sanitize%,$(MODE))
PLUGIN_CFLAGS = $(PLUGIN_MODE) $(HARDENING) $(CF_PROTECTION) -fPIC -fvisibility=hidden $(PQ_CFLAGS)
PLUGIN_LDFLAGS := $(filter --coverage,$(MODE)) -shared $(HARDENING_LD)

# ---- what is built ---------------------------------------------------------------------------
ROOMS := base message config ipc mq db inbox handler
ROLES := supervisor consumer worker janitor check
LIB_SRC := $(sort $(wildcard $(ROOMS:%=src/%/*.c)))
ROLE_SRC := $(sort $(wildcard $(ROLES:%=src/%/*.c)))
CTL_SRC := $(sort $(wildcard src/ctl/*.c))
HANDLER_SRC := $(sort $(wildcard src/handlers/*.c))
UNIT_SRC := $(sort $(wildcard tests/unit/*.c tests/unit/*/*.c))
INTEGRATION_SRC := $(sort $(wildcard tests/integration/*.c))
FAULTS_SRC := $(sort $(wildcard tests/faults/*.c))
BENCH_SRC := $(sort $(wildcard tests/bench/*.c))
INSTRUCTIONS_SRC := $(sort $(wildcard tests/instructions/*.c))
SQL := $(sort $(wildcard sql/*.sql))

# The files that name an installed place: these alone are compiled anew when one changes.
PLACES := -DINBOXD_SYSCONFDIR='"$(SYSCONFDIR)"' -DINBOXD_HANDLERDIR='"$(HANDLERDIR)"'
PLACES_IN := src/main.c src/config/schema.c src/ctl/args.c src/ctl/main.c tests/unit/config/test_config.c \
  tests/unit/config/test_print.c

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB := $(B)/libinboxd.a
ROLE_LIB := $(B)/libroles.a
CTL_LIB := $(B)/libctl.a
HANDLERS := $(HANDLER_SRC:src/handlers/%.c=$(B)/handlers/%.so)
TEST_HANDLERS := $(patsubst tests/handlers/%,$(B)/tests/handlers/%.so,$(basename $(wildcard tests/handlers/*.c tests/handlers/*.cc)))
OBJECTS := $(call obj,src/main.c $(LIB_SRC) $(ROLE_SRC) $(CTL_SRC) $(UNIT_SRC) $(INTEGRATION_SRC) \
  $(FAULTS_SRC) $(filter-out tests/bench/bench_handler.c,$(BENCH_SRC)) $(INSTRUCTIONS_SRC) \
  $(wildcard tests/fuzz/*.c))

# $(call remember,FILE,TEXT) writes FILE when TEXT is not what it holds: whatever depends on it is made
# again when compiler, flags or the list of sources change, and only then.
define remember
ifneq ($$(file <$(1)),$$(strip $(2)))
$$(shell mkdir -p $$(dir $(1)))
$$(file >$(1),$$(strip $(2)))
endif
endef
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS))),) # but not by make -n
ifneq ($(filter-out help clean format uninstall,$(or $(MAKECMDGOALS),all)),)
$(eval $(call remember,$(B)/flags,$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(LDFLAGS) $$(WARNINGS) $$(MODE) \
  $$(HARDENING) $$(OUR_CPPFLAGS)))
$(eval $(call remember,$(B)/gen/sql_files.h,$$(patsubst sql/%.sql,SQL_FILE(%),$$(SQL))))
$(eval $(call remember,$(B)/places,$$(PLACES)))
$(eval $(call remember,$(B)/sources,$$(LIB_SRC) $$(ROLE_SRC) $$(CTL_SRC) $$(UNIT_SRC) $$(INTEGRATION_SRC) \
  $$(FAULTS_SRC)))
endif
endif

$(call obj,$(PLACES_IN)): $(B)/places
$(call obj,$(PLACES_IN)): OUR_CPPFLAGS += $(PLACES)

all: $(B)/inboxd $(B)/inboxctl $(HANDLERS)

$(LIB): $(call obj,$(LIB_SRC))
$(ROLE_LIB): $(call obj,$(ROLE_SRC))
$(CTL_LIB): $(call obj,$(filter-out %/main.c,$(CTL_SRC)))
$(LIB) $(ROLE_LIB) $(CTL_LIB): $(B)/sources
	@rm -f $@
	$(call say,AR)
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

LINK = $(Q)$(CC) $(OUR_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^)

$(B)/inboxd: $(call obj,src/main.c) $(ROLE_LIB) $(LIB)
	$(call say,LD)
	$(LINK) $(PKG_LIBS) -ldl

$(B)/inboxctl: $(call obj,src/ctl/main.c) $(CTL_LIB) $(LIB)
	$(call say,LD)
	$(LINK) $(PKG_LIBS) -ldl

$(B)/obj/%.o: %.c $(B)/flags | $(B)/.libraries
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(COMPILE) -c -o $@ $<

$(B)/handlers/%.so: src/handlers/%.c $(B)/flags | $(B)/.libraries
	@mkdir -p $(@D)
	$(call say,SO)
	$(Q)$(CC) -D_GNU_SOURCE -Isrc/handler -std=gnu11 $(WARNINGS) $(PLUGIN_CFLAGS) $(CPPFLAGS) $(CFLAGS) \
	  -MMD -MP $(PLUGIN_LDFLAGS) $(LDFLAGS) -o $@ $<

# The migrations travel inside the programs; sql_files.h names them.
$(call obj,src/db/migrations.c): $(SQL)

# The Makefile itself decides what is compiled how.
$(B)/flags $(B)/places $(B)/sources: Makefile
	@touch $@

# Looked for once: one plain line instead of a hundred lines about missing headers.
$(B)/.libraries:
	@mkdir -p $(@D)
	@command -v $(PKG_CONFIG) >/dev/null && $(PKG_CONFIG) --exists $(PKGS) || { \
	  echo "inboxd needs $(PKGS); on Debian: apt-get install $$(tests/deps.sh list build)" >&2; exit 1; }
	@touch $@

# ---- tests -----------------------------------------------------------------------------------
$(B)/tests/unit: $(call obj,$(UNIT_SRC)) $(CTL_LIB) $(ROLE_LIB) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(LINK) $(CHECK_LIBS) $(PKG_LIBS) -ldl -lm

$(B)/tests/integration: $(call obj,$(INTEGRATION_SRC) tests/unit/unit.c tests/unit/mq/certs.c \
  tests/unit/mq/relay.c) $(LIB) $(B)/sources
	@mkdir -p $(@D)
	$(call say,LD)
	$(LINK) $(CHECK_LIBS) $(PKG_LIBS) -ldl -lm

# On the harness of the integration tests, without their suites.
$(B)/tests/faults: $(call obj,$(FAULTS_SRC) $(filter-out tests/integration/test_%,$(INTEGRATION_SRC)) \
  tests/unit/unit.c) $(LIB) $(B)/sources
	@mkdir -p $(@D)
	$(call say,LD)
	$(LINK) $(CHECK_LIBS) $(PKG_LIBS) -ldl -lm

# The programs of the benchmark: what publishes, and the floor that inboxd is measured against.
BENCH := $(B)/tests/bench/load $(B)/tests/bench/floor
$(BENCH): $(B)/tests/bench/%: $(B)/obj/tests/bench/%.o $(B)/obj/tests/bench/amqp.o
	@mkdir -p $(@D)
	$(call say,LD)
	$(LINK) $(PKG_LIBS)

$(B)/tests/bench/bench.so: tests/bench/bench_handler.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,SO)
	$(Q)$(CC) -D_GNU_SOURCE -Isrc/handler -std=gnu11 $(WARNINGS) $(PLUGIN_CFLAGS) $(CPPFLAGS) $(CFLAGS) \
	  -MMD -MP $(PLUGIN_LDFLAGS) $(LDFLAGS) -o $@ $<

$(B)/tests/bench/markers: $(B)/obj/tests/bench/markers.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(LINK) $(PKG_LIBS) -ldl

bench-programs: all $(BENCH) $(B)/tests/bench/markers $(B)/tests/bench/bench.so

$(B)/tests/neighbours: $(call obj,$(INSTRUCTIONS_SRC)) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD)
	$(LINK) $(PKG_LIBS) -ldl

$(B)/tests/handlers/%.so: tests/handlers/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,SO)
	$(Q)$(CC) -D_GNU_SOURCE -Isrc/handler -std=gnu11 -g -O1 -fPIC $(PQ_CFLAGS) -MMD -MP -shared -o $@ $<

$(B)/tests/handlers/%.so: tests/handlers/%.cc $(B)/flags
	@mkdir -p $(@D)
	$(call say,SO)
	$(Q)$(CXX) -Isrc/handler -std=c++20 -Wall -Wextra -g -O1 -fPIC -MMD -MP -shared -o $@ $<

check-unit: $(B)/tests/unit $(TEST_HANDLERS)
	INBOXD_TEST_HANDLERS=$(abspath $(B))/tests/handlers $(B)/tests/unit

# These run on what was just built, in a place of their own.
check-install: all
	$(Q)tests/install/run.sh "$(MAKE)" $(B)

check-systemd: all
	$(Q)tests/systemd/run.sh $(B)

check-examples: all
	$(Q)tests/examples/run.sh "$(MAKE)" $(B)

check-integration: all $(B)/tests/integration $(TEST_HANDLERS)
	$(Q)tests/integration/run.sh $(B) $(SUITES)

check-instructions: all $(B)/tests/neighbours
	$(Q)tests/instructions/run.sh $(B) $(VARIANT) $(filter-out cc gcc,$(CC)) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)

# The same kills, and the same look at memory, over ten times as many messages.
check-kills check-memory: export INBOXD_TEST_MESSAGES ?= 200000
check-kills: SUITES := integration/kills
check-memory: SUITES := integration/messages
check-memory: export INBOXD_TEST_ONLY := memory_does_not_grow
check-memory: export CK_TIMEOUT_MULTIPLIER ?= 5
check-kills check-memory: check-integration

# Built apart, with fault points; the programs of this build must not have them.
FAULTS_B := build/faults$(if $(filter-out build/$(VARIANT),$(B)),-$(notdir $(B)))
check-faults: all
	$(Q)+$(MAKE) --no-print-directory VARIANT=faults B=$(FAULTS_B) faults-programs
	$(Q)INBOXD_TEST_SHIPPED=$(abspath $(B)) INBOXD_TEST_PROGRAM=$(abspath tests/faults/all.sh) \
	  tests/integration/run.sh $(FAULTS_B) $(SUITES)

faults-programs: all $(B)/tests/faults $(TEST_HANDLERS)

# What is missing is installed first; the build comes after it, in a make of its own.  Of the faults a
# quarter of the grid (a different one for each row) and short runs: make check-faults takes its time.
check: export INBOXD_FAULT_STRIDE ?= 4
check: export INBOXD_FAULT_KILLS ?= 50
check: export INBOXD_FAULT_AWAY_SECONDS ?= 8
check: export INBOXD_FAULT_SECONDS ?= 30
check:
	$(Q)tests/deps.sh check
	$(Q)+tests/check.sh $(B) $(MAKE) -- unit install systemd examples instructions integration faults

demo:
	$(Q)tests/deps.sh demo
	$(Q)+$(MAKE) --no-print-directory all
	$(Q)tests/demo/demo.sh $(B)

# QUICK=1: fewer contestants and messages, in three minutes instead of fifteen.
QUICK ?=
bench:
	$(Q)tests/deps.sh bench
	$(Q)+$(MAKE) --no-print-directory bench-programs
	$(Q)tests/bench/run.sh $(B) $(if $(QUICK),--quick)

COVERAGE_OF ?= check-unit
coverage:
	$(Q)tests/deps.sh lint
	$(Q)$(MAKE) VARIANT=cov $(COVERAGE_OF)
	$(Q)lcov --quiet --capture --directory build/cov/obj/src --output-file build/cov/coverage.info
	$(Q)genhtml --quiet --output-directory build/cov/coverage build/cov/coverage.info
	@lcov --summary build/cov/coverage.info
	@echo "see build/cov/coverage/index.html"

# Each target for FUZZ_SECONDS, from what it found before; a crash leaves its input in build/fuzz/.
FUZZ_SECONDS ?= 60
FUZZ := $(patsubst tests/fuzz/%.c,$(B)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz:
	$(Q)tests/deps.sh lint
	$(Q)$(MAKE) VARIANT=fuzz CC="$(CLANG)" fuzz-all

fuzz-all: $(FUZZ:=.run)

$(B)/tests/fuzz_%: $(B)/obj/tests/fuzz/fuzz_%.o $(LIB)
	@mkdir -p $(@D)
	$(Q)$(call say,LD)
	$(Q)$(Q)$(CC) $(OUR_LDFLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(PKG_LIBS) -ldl

%.run: %
	@mkdir -p $(B)/corpus/$(<F)
	$(Q)$< -max_total_time=$(FUZZ_SECONDS) -timeout=5 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
	  -artifact_prefix=$(B)/$(<F)- $(B)/corpus/$(<F) $(wildcard tests/fuzz/seeds/$(<F))

# ---- lint ------------------------------------------------------------------------------------
HEADERS := $(sort $(wildcard src/*/*.h src/*/*/*.h tests/*/*.h tests/*/*/*.h))
SOURCES := $(sort src/main.c $(LIB_SRC) $(ROLE_SRC) $(CTL_SRC) $(HANDLER_SRC) $(UNIT_SRC) \
  $(INTEGRATION_SRC) $(FAULTS_SRC) $(INSTRUCTIONS_SRC) $(wildcard tests/handlers/*.c tests/fuzz/*.c))
SCRIPTS := $(sort $(wildcard .ci/run tests/*.sh tests/*/*.sh))
PLAIN_FLAGS = $(OUR_CPPFLAGS) $(PLACES) $(CPPFLAGS) -std=gnu11 $(PKG_CFLAGS)

lint: lint-tools lint-licence lint-scripts lint-headers lint-cppcheck lint-tidy

lint-tools:
	$(Q)tests/deps.sh lint

lint-licence:
	$(Q)tests/lint/licence.sh

lint-scripts:
	$(Q)$(SHELLCHECK) $(SCRIPTS)

# Each header compiles alone; the public ones also as C99 and as C++.
lint-headers: | $(B)/.libraries
	@for h in $(HEADERS); do \
	  echo "#include \"$$h\"" | $(CC) $(PLAIN_FLAGS) $(WARNINGS) -Wno-unused-function -Werror -I. -fsyntax-only -x c - || exit 1; done
	@for h in $(wildcard src/handler/inboxd/*.h); do \
	  echo "#include \"$$h\"" | $(CC) -std=c99 -Wall -Wextra -Wpedantic -Werror -I. -Isrc/handler -fsyntax-only -x c - && \
	  echo "#include \"$$h\"" | $(CXX) -std=c++11 -Wall -Wextra -Wpedantic -Werror -I. -Isrc/handler -fsyntax-only -x c++ - || exit 1; done
	@echo "$(words $(HEADERS)) headers compile alone"

# uninitvar is left to gcc and the analyzer of clang: this one takes out-parameters and the loops of
# uthash for uses of what is not set.
lint-cppcheck: | $(B)/.libraries
	$(Q)$(call say,LINT)
	@mkdir -p $(B)/lint/cppcheck
	$(Q)$(Q)$(CPPCHECK) --quiet --error-exitcode=1 --std=c11 --enable=warning,performance,portability \
	  --inline-suppr --suppress=uninitvar --suppress=ctuuninitvar --cppcheck-build-dir=$(B)/lint/cppcheck \
	  $(filter -I% -D%,$(OUR_CPPFLAGS) $(PLACES)) $(filter src/%,$(SOURCES))

# A file is looked at again when it, a header of its own or the list of checks has changed.
lint-tidy: $(patsubst %.c,$(B)/lint/%.tidy,$(filter-out src/handlers/%,$(filter src/%,$(SOURCES))))
$(B)/lint/%.tidy: %.c $(B)/obj/%.o .clang-tidy
	@mkdir -p $(@D)
	$(Q)$(call say,TIDY)
	$(Q)$(Q)$(CLANG_TIDY) --quiet $< -- $(PLAIN_FLAGS) 2>$@.log || { cat $@.log >&2; exit 1; }
	@touch $@

format:
	$(Q)$(CLANG_FORMAT) -i $(SOURCES) $(HEADERS)

# ---- install ---------------------------------------------------------------------------------
D = $(DESTDIR)
SHIPPED_HANDLERS := $(filter $(B)/handlers/sql.so,$(HANDLERS))
EXAMPLES := $(filter-out src/handlers/sql.c,$(sort $(wildcard src/handlers/*.[ch] src/handlers/*.sql)))
MAN := $(sort $(wildcard conf/man/*.[1-9]))
PUBLIC_HEADERS := $(sort $(wildcard src/handler/inboxd/*.h))
man_place = $(MANDIR)/man$(subst .,,$(suffix $(1)))/$(notdir $(1))

# The files of systemd/ and conf/ name the places of a distribution's package.
PLACED = sed -e 's|/usr/sbin/|$(SBINDIR)/|g' -e 's|/etc/inboxd|$(SYSCONFDIR)/inboxd|g' \
  -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
  -e 's|@HANDLERDIR@|$(HANDLERDIR)|g' -e 's|@VERSION@|$(VERSION)|g'
# $(call put,SOURCE,PLACE): one file with its places filled in, as a recipe line.
put = $(PLACED) $(1) >$(B)/put && $(INSTALL) -m 0644 $(B)/put $(D)$(2)

install: all
	$(Q)$(INSTALL) -d -m 0755 $(addprefix $(D),$(BINDIR) $(SBINDIR) $(HANDLERDIR) $(INCLUDEDIR)/inboxd \
	  $(PKGCONFIGDIR) $(UNITDIR) $(SYSUSERSDIR) $(TMPFILESDIR) $(DOCDIR)/examples \
	  $(SYSCONFDIR)/inboxd/conf.d $(sort $(dir $(foreach m,$(MAN),$(call man_place,$(m))))))
	$(Q)$(INSTALL) -m 0755 $(B)/inboxd $(D)$(SBINDIR)/inboxd
	$(Q)$(INSTALL) -m 0755 $(B)/inboxctl $(D)$(BINDIR)/inboxctl
	$(Q)$(INSTALL) -m 0644 $(SHIPPED_HANDLERS) $(D)$(HANDLERDIR)/
	$(Q)$(INSTALL) -m 0644 $(PUBLIC_HEADERS) $(D)$(INCLUDEDIR)/inboxd/
	$(Q)$(call put,conf/inboxd.pc.in,$(PKGCONFIGDIR)/inboxd.pc)
	$(Q)$(call put,systemd/inboxd.service,$(UNITDIR)/inboxd.service)
	$(Q)$(call put,systemd/inboxd@.service,$(UNITDIR)/inboxd@.service)
	$(Q)$(call put,systemd/inboxd.sysusers,$(SYSUSERSDIR)/inboxd.conf)
	$(Q)$(call put,systemd/inboxd.tmpfiles,$(TMPFILESDIR)/inboxd.conf)
	$(Q)$(foreach m,$(MAN),$(call put,$(m),$(call man_place,$(m))) &&) true
	$(Q)$(INSTALL) -m 0644 README.md CHANGELOG.md LICENSE $(D)$(DOCDIR)/
	$(Q)$(INSTALL) -m 0644 $(EXAMPLES) $(D)$(DOCDIR)/examples/
	$(Q)test -e $(D)$(SYSCONFDIR)/inboxd/inboxd.yaml || \
	  $(INSTALL) -m 0644 conf/inboxd.yaml $(D)$(SYSCONFDIR)/inboxd/inboxd.yaml
	@echo "  installed below $(or $(D),/)"
	@test -n "$(D)" || echo "next: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload"

# Leaves the configuration, and handlers that are not ours.
uninstall:
	$(Q)rm -f $(D)$(SBINDIR)/inboxd $(D)$(BINDIR)/inboxctl $(D)$(PKGCONFIGDIR)/inboxd.pc \
	  $(D)$(UNITDIR)/inboxd.service $(D)$(UNITDIR)/inboxd@.service \
	  $(D)$(SYSUSERSDIR)/inboxd.conf $(D)$(TMPFILESDIR)/inboxd.conf \
	  $(foreach m,$(MAN),$(D)$(call man_place,$(m))) \
	  $(addprefix $(D)$(HANDLERDIR)/,$(notdir $(SHIPPED_HANDLERS))) \
	  $(addprefix $(D)$(INCLUDEDIR)/inboxd/,$(notdir $(PUBLIC_HEADERS))) \
	  $(addprefix $(D)$(DOCDIR)/,README.md CHANGELOG.md LICENSE $(addprefix examples/,$(notdir $(EXAMPLES))))
	@for d in $(HANDLERDIR) $(dir $(HANDLERDIR)) $(INCLUDEDIR)/inboxd $(DOCDIR)/examples $(DOCDIR); do \
	  rmdir "$(D)$$d" 2>/dev/null || true; done

clean:
	rm -rf build

# ---- help ------------------------------------------------------------------------------------
define HELP
Targets
  all                 programs and handlers, in build/VARIANT/ (the default)
  check               all tests
  check-unit          unit tests
  check-examples      handlers built outside the tree against what install puts
  check-install       what install and uninstall put, leave and remove
  check-systemd       the units are valid and locked down
  check-instructions  instructions per message of worker and consumer, against tests/instructions/expected
  check-integration   tests against a private RabbitMQ and PostgreSQL; SUITES=name... for some
  check-faults        a process held at each point of a message's way while something goes away, and
                      all faults at random for INBOXD_FAULT_SECONDS; SUITES=name... for some
  faults-programs     what check-faults runs; with VARIANT=faults
  check-kills         its kill -9 tests at full size, INBOXD_TEST_MESSAGES=200000
  check-memory        its test that memory does not grow, over as many
  demo                real messages, duplicates among them, and the sums
  bench               inboxd beside the least that a program must do and what people write themselves, in
                      15 minutes; QUICK=1 in three
  bench-programs      what bench runs of ours
  coverage            tests of COVERAGE_OF with line coverage: build/cov/coverage/index.html
  fuzz                each target of tests/fuzz/ for FUZZ_SECONDS, with clang
  lint                lint-tools lint-licence lint-scripts lint-headers lint-cppcheck lint-tidy
  lint-tools          the packages that lint needs
  lint-licence        every file says its licence
  lint-scripts        shellcheck over the scripts
  lint-headers        every header compiles alone, the public ones as C99 and C++ too
  lint-cppcheck       cppcheck over src/
  lint-tidy           clang-tidy, file by file
  format              clang-format all sources in place
  install             programs, handlers, header, units, manual; never overwrites a configuration
  uninstall           removes what install put, but for the configuration
  clean               removes build/
  help                this text
Variables
  VARIANT=release     release debug asan tsan cov faults fuzz
  WERROR=1            warnings are errors
  V=1                 shows the commands
  CC=cc               compiler
  CXX=g++             C++ compiler, for lint-headers and the test of a C++ handler
  CFLAGS= CPPFLAGS= LDFLAGS=   yours, behind ours
  PKG_CONFIG INSTALL CLANG CLANG_FORMAT CLANG_TIDY CPPCHECK SHELLCHECK   programs used
  INBOXD_FAULT_SECONDS=180 INBOXD_FAULT_SEED=   of the random run of check-faults
  QUICK=              1: bench does the shortest round only
  FUZZ_SECONDS=60     for each target
  COVERAGE_OF=check-unit   targets that coverage runs
  B=build/VARIANT     where everything is built
  DESTDIR=            put in front of every path by install and uninstall
  PREFIX=/usr/local   beneath it BINDIR, SBINDIR, LIBDIR, INCLUDEDIR, MANDIR, DOCDIR
  SYSCONFDIR=/etc     holds inboxd/inboxd.yaml
  BINDIR=PREFIX/bin   inboxctl
  SBINDIR=PREFIX/sbin inboxd
  LIBDIR=PREFIX/lib   beneath it HANDLERDIR and PKGCONFIGDIR
  INCLUDEDIR=PREFIX/include   inboxd/handler.h
  MANDIR=PREFIX/share/man     manual pages
  DOCDIR=PREFIX/share/doc/inboxd   this README and the examples
  PKGCONFIGDIR=LIBDIR/pkgconfig    inboxd.pc
  HANDLERDIR=LIBDIR/inboxd/handlers   where handlers are looked for unless configured
  UNITDIR=PREFIX/lib/systemd/system   units
  SYSUSERSDIR=PREFIX/lib/sysusers.d   the user inboxd
  TMPFILESDIR=PREFIX/lib/tmpfiles.d   directories
endef
help:
	@: $(info $(HELP))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
-include $(OBJECTS:.o=.d) $(HANDLERS:.so=.d) $(TEST_HANDLERS:.so=.d)
.PHONY: all check check-unit check-install check-systemd check-examples check-instructions check-integration check-faults faults-programs check-kills check-memory demo bench bench-programs coverage fuzz format install uninstall clean help
.PHONY: lint lint-tools lint-licence lint-scripts lint-headers lint-cppcheck lint-tidy
