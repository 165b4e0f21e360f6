/* SPDX-License-Identifier: MIT */
/* Headers of ELF files, read as far as their sizes go. */
#include "handler/object.h"

#include <elf.h>
#include <inttypes.h>
#include <link.h>

/* This machine's own class; files of the other one are refused before their headers are read. */
typedef ElfW(Ehdr) ehdr;
typedef ElfW(Phdr) phdr;
typedef ElfW(Shdr) shdr;

static const char *machine_name(uint16_t machine)
{
	static const struct {
		uint16_t machine;
		const char *name;
	} names[] = {
		{EM_386, "i386"},
		{EM_X86_64, "x86-64"},
		{EM_ARM, "arm"},
		{EM_AARCH64, "aarch64"},
		{EM_PPC64, "ppc64"},
		{EM_S390, "s390"},
		{EM_RISCV, "riscv"},
		{EM_MIPS, "mips"},
		{EM_LOONGARCH, "loongarch"},
	};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (names[i].machine == machine)
			return names[i].name;
	return "an unknown machine";
}

/* Whether n entries of the given size, at offset, lie within the file; *ret_end is where they
 * end. */
static bool lies_within(
	uint64_t file_size, uint64_t offset, uint64_t n, uint64_t size, uint64_t *ret_end)
{
	uint64_t length, end;
	if (__builtin_mul_overflow(n, size, &length) ||
		__builtin_add_overflow(offset, length, &end)) {
		*ret_end = UINT64_MAX;
		return false;
	}
	if (end > *ret_end)
		*ret_end = end;
	return end <= file_size;
}

static enum rc check_kind(struct bytes file, struct bytes self, struct err *err)
{
	ehdr e, ours;
	if (file.size == 0)
		return err_set(err, RC_FATAL, "it is empty");
	if (file.size < SELFMAG || memcmp(file.data, ELFMAG, SELFMAG) != 0)
		return err_set(err, RC_FATAL,
			"it is not a shared object (no ELF file): compile the handler with cc "
			"-shared -fPIC");
	if (file.size < sizeof e || self.size < sizeof ours)
		return err_set(err, RC_FATAL,
			"it is cut off within its first %zu bytes: copy it again", sizeof e);
	memcpy(&e, file.data, sizeof e);
	memcpy(&ours, self.data, sizeof ours);
	if (e.e_machine != ours.e_machine || e.e_ident[EI_CLASS] != ours.e_ident[EI_CLASS] ||
		e.e_ident[EI_DATA] != ours.e_ident[EI_DATA])
		return err_set(err, RC_FATAL,
			"it is built for %s (%s bit, %s-endian, ELF machine %u), this is %s: "
			"compile it "
			"for this machine",
			machine_name(e.e_machine), e.e_ident[EI_CLASS] == ELFCLASS64 ? "64" : "32",
			e.e_ident[EI_DATA] == ELFDATA2LSB ? "little" : "big", e.e_machine,
			machine_name(ours.e_machine));
	if (e.e_type != ET_DYN)
		return err_set(err, RC_FATAL,
			"it is %s, not a shared object: link it with cc -shared",
			e.e_type == ET_REL            ? "an object file"
				: e.e_type == ET_EXEC ? "a program"
				: e.e_type == ET_CORE ? "a core dump"
						      : "an ELF file of unknown type");
	return RC_OK;
}

/* How many bytes the headers say there are, as far as they can be read; true if all of them are
 * here. */
static bool is_whole(struct bytes file, const ehdr *e, uint64_t *ret_end)
{
	bool whole = lies_within(file.size, e->e_phoff, e->e_phnum, e->e_phentsize, ret_end);
	whole = lies_within(file.size, e->e_shoff, e->e_shnum, e->e_shentsize, ret_end) && whole;
	for (uint16_t i = 0; whole && i < e->e_phnum; i++) {
		phdr p;
		memcpy(&p, file.data + e->e_phoff + (size_t)i * e->e_phentsize, sizeof p);
		whole = lies_within(file.size, p.p_offset, 1, p.p_filesz, ret_end);
	}
	for (uint16_t i = 0; whole && i < e->e_shnum; i++) {
		shdr s;
		memcpy(&s, file.data + e->e_shoff + (size_t)i * e->e_shentsize, sizeof s);
		if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL)
			whole = lies_within(file.size, s.sh_offset, 1, s.sh_size, ret_end);
	}
	return whole;
}

static bool has_dynamic_section(struct bytes file, const ehdr *e)
{
	for (uint16_t i = 0; i < e->e_phnum; i++) {
		phdr p;
		memcpy(&p, file.data + e->e_phoff + (size_t)i * e->e_phentsize, sizeof p);
		if (p.p_type == PT_DYNAMIC)
			return true;
	}
	return false;
}

enum rc object_check(struct bytes file, struct bytes self, struct err *err)
{
	ehdr e;
	uint64_t end = 0;
	if (check_kind(file, self, err) != RC_OK)
		return err->rc;
	memcpy(&e, file.data, sizeof e);
	if (e.e_phnum == 0 || e.e_phentsize != sizeof(phdr) ||
		(e.e_shnum != 0 && e.e_shentsize != sizeof(shdr)))
		return err_set(
			err, RC_FATAL, "its ELF headers are damaged: build or copy it again");
	if (!is_whole(file, &e, &end))
		return err_set(err, RC_FATAL,
			"it is cut off: %zu bytes are here, at least %" PRIu64
			" belong to it; copy it again",
			file.size, end);
	if (!has_dynamic_section(file, &e))
		return err_set(
			err, RC_FATAL, "it cannot be loaded at run time: link it with cc -shared");
	return RC_OK;
}
