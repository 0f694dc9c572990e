# outbox: `make` builds everything into build/, `make check` proves it, `make demo` shows it.
#
#   B=DIR                       build folder (default build, or one below it a sanitizer)
#   V=1                         show the commands
#   CI=true                     warnings are errors
#   SANITIZE=address,undefined  instrument; has a build folder of its own
#   PREFIX, DESTDIR             where `make install` puts things (default /usr/local)

comma := ,
SANITIZE ?=
B ?= build$(if $(SANITIZE),/$(subst $(comma),-,$(SANITIZE)))
PREFIX ?= /usr/local
DESTDIR ?=
BINDIR = $(DESTDIR)$(PREFIX)/bin
MANDIR = $(DESTDIR)$(PREFIX)/share/man
DATADIR = $(DESTDIR)$(PREFIX)/share/outbox
BASHDIR = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSHDIR = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
Q = $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# ---- what there is to build: a program is cmd/NAME.c, or a folder cmd/NAME/ of several files

LIB_SOURCES := $(wildcard lib/*.c)
LIB_OBJECTS := $(LIB_SOURCES:%.c=$(B)/%.o) $(B)/migrations.o
SINGLE_PROGRAMS := $(patsubst cmd/%.c,%,$(wildcard cmd/*.c))
FOLDER_PROGRAMS := $(sort $(patsubst cmd/%/,%,$(dir $(wildcard cmd/*/*.c))))
PROGRAMS := $(SINGLE_PROGRAMS) $(FOLDER_PROGRAMS)
# Besides the cmocka tests: what the other suites need that is written in C.
UNIT_TESTS := $(patsubst %.c,$(B)/%,$(wildcard tests/unit/test_*.c))
TEST_TOOLS := $(patsubst %.c,$(B)/%,$(wildcard tests/e2e/*.c tests/fault/*.c tests/bench/*.c))
PRELOADS := $(patsubst %.c,$(B)/%.so,$(wildcard tests/fault/preload/*.c))
SQL := $(sort $(wildcard sql/migrations/*.sql)) $(sort $(wildcard sql/functions/*.sql)) \
	sql/roles.sql
MANUALS := $(wildcard cmd/*.[157] cmd/*/*.[157])

# ---- flags

MSGPACK := $(shell pkg-config --exists msgpack-c 2>/dev/null && echo msgpack-c || echo msgpack)
PACKAGES := libpq libzmq $(MSGPACK) inih
CC ?= cc
CFLAGS ?= -O2 -g
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wmissing-prototypes -Wvla \
	$(if $(filter true,$(CI)),-Werror)
ifeq ($(SANITIZE),)
HARDENING := -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
else
# _FORTIFY_SOURCE hides calls from the sanitizers.
HARDENING := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer \
	-U_FORTIFY_SOURCE
endif
# What pkg-config has to complain about is said by the rule of $(B)/packages.
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -Ilib $(WARNINGS) $(HARDENING) -fPIE \
	$(shell pkg-config --cflags $(PACKAGES) 2>/dev/null) $(CFLAGS) -MMD -MP
ALL_LDFLAGS := $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -pie -Wl,-z,relro,-z,now \
	-Wl,--as-needed $(LDFLAGS)
LIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lm

# ---- building

.PHONY: all tests bench-tools check check-unit check-sql check-e2e check-fault check-versions \
	demo bench bench-peers install uninstall lint format asan clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: $(PROGRAMS:%=$(B)/%)

tests: all $(UNIT_TESTS) $(TEST_TOOLS) $(PRELOADS)

bench-tools: all $(filter $(B)/tests/bench/%,$(TEST_TOOLS))

$(B)/liboutbox.a: $(LIB_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJECTS)

$(B)/%.o: %.c | $(B)/packages
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -c -o $@ $<

$(B)/migrations.o: $(B)/migrations.c | $(B)/packages
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# The schema travels inside the programs; the list notices files that were added or removed.
$(B)/migrations.c: scripts/embed-sql $(B)/migrations.list $(SQL)
	$(call say,SQL,$@)
	$(Q)scripts/embed-sql $(SQL) >$@

$(B)/migrations.list: FORCE
	$(Q)mkdir -p $(@D) && echo '$(SQL)' | cmp -s - $@ || echo '$(SQL)' >$@

# Says what is missing before the compiler complains about a header.
$(B)/packages:
	$(Q)mkdir -p $(@D) && pkg-config --exists --print-errors $(PACKAGES) || \
		{ echo 'make: libraries are missing: run scripts/deps build' >&2; exit 1; }
	$(Q)echo $(PACKAGES) >$@

define single_program
$(B)/$(1): $(B)/cmd/$(1).o $(B)/liboutbox.a
endef

define folder_program
$(B)/$(1): $(patsubst %.c,$(B)/%.o,$(wildcard cmd/$(1)/*.c)) $(B)/liboutbox.a
endef

$(foreach name,$(SINGLE_PROGRAMS),$(eval $(call single_program,$(name))))
$(foreach name,$(FOLDER_PROGRAMS),$(eval $(call folder_program,$(name))))

$(PROGRAMS:%=$(B)/%):
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$(UNIT_TESTS): $(B)/%: $(B)/%.o $(B)/liboutbox.a
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS) $$(pkg-config --libs cmocka)

$(TEST_TOOLS): $(B)/%: $(B)/%.o $(B)/liboutbox.a
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

# Into programs whose calls of a library fail on purpose.
$(PRELOADS): $(B)/%.so: %.c
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -fPIC -shared -o $@ $<

# What a benchmark executes thousands of times is to cost nothing by itself. (A static program
# cannot be instrumented.)
ifeq ($(SANITIZE),)
$(B)/tests/bench/noop: ALL_LDFLAGS := -static
$(B)/tests/bench/noop: LIBS :=
endif

asan:
	$(Q)$(MAKE) SANITIZE=address,undefined B=$(B)/address-undefined tests

clean:
	rm -rf $(B)

# ---- proving and showing; packages first, then a second make that finds them

check:
	$(Q)scripts/deps test
	$(Q)$(MAKE) tests
	$(Q)B=$(B) scripts/check

check-unit check-sql check-e2e check-fault: check-%: tests
	$(Q)B=$(B) scripts/check $*

# Needs the network and 20 minutes: not part of `make check`.
check-versions:
	$(Q)scripts/deps test
	$(Q)$(MAKE) tests
	$(Q)B=$(B) scripts/check-versions

demo:
	$(Q)scripts/deps demo
	$(Q)$(MAKE) all
	$(Q)B=$(B) scripts/demo

bench:
	$(Q)scripts/deps bench
	$(Q)$(MAKE) bench-tools
	$(Q)B=$(B) scripts/bench

bench-peers:
	$(Q)scripts/deps bench
	$(Q)$(MAKE) bench-tools
	$(Q)B=$(B) scripts/bench-peers

lint:
	$(Q)scripts/deps lint
	$(Q)$(MAKE) all
	$(Q)B=$(B) scripts/lint

format:
	clang-format -i $(wildcard lib/*.[ch] cmd/*.[ch] cmd/*/*.[ch] tests/*/*.[ch] tests/fault/preload/*.c)

# ---- installing

INSTALLED_SCRIPTS := $(wildcard scripts/outbox-*)
SAMPLES := $(wildcard scripts/handlers/* scripts/supervisord/* scripts/systemd/* \
	scripts/grafana/* scripts/prometheus/* scripts/examples/*flaky* scripts/examples/handlers.d/*)
COMMANDS := $(PROGRAMS) $(INSTALLED_SCRIPTS:scripts/%=%)

# Bash looks for a file of the command's name, so all but one are links.
$(B)/completion/bash $(B)/completion/zsh: $(B)/completion/%: scripts/make-completion \
	$(PROGRAMS:%=$(B)/%) $(INSTALLED_SCRIPTS)
	$(call say,SH,$@)
	$(Q)mkdir -p $(@D) && scripts/make-completion $* $(filter-out $<,$^) >$@

install: all $(B)/completion/bash $(B)/completion/zsh
	install -d $(BINDIR) $(DATADIR)
	$(if $(PROGRAMS),install -m 755 $(PROGRAMS:%=$(B)/%) $(BINDIR))
	$(if $(INSTALLED_SCRIPTS),install -m 755 $(INSTALLED_SCRIPTS) $(BINDIR))
	for page in $(MANUALS); do \
		install -D -m 644 $$page $(MANDIR)/man$${page##*.}/$${page##*/} || exit 1; \
	done
	for sample in $(SAMPLES:scripts/%=%); do \
		install -D -m "$$(test -x scripts/$$sample && echo 755 || echo 644)" \
			scripts/$$sample $(DATADIR)/$$sample || exit 1; \
	done
	install -D -m 644 $(B)/completion/bash $(BASHDIR)/outbox
	for name in $(filter-out outbox,$(COMMANDS)); do \
		ln -sf outbox $(BASHDIR)/$$name || exit 1; \
	done
	install -D -m 644 $(B)/completion/zsh $(ZSHDIR)/_outbox

uninstall:
	rm -f $(COMMANDS:%=$(BINDIR)/%) $(COMMANDS:%=$(BASHDIR)/%) $(ZSHDIR)/_outbox
	for page in $(MANUALS); do rm -f $(MANDIR)/man$${page##*.}/$${page##*/}; done
	rm -rf $(DATADIR)

-include $(shell find $(B)/lib $(B)/cmd $(B)/tests -name '*.d' 2>/dev/null)
