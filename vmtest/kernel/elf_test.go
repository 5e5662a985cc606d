package kernel

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
)

// module returns a kernel module that contains only what depmod reads: the symbols that it exports,
// those that it imports, and its modinfo ("softdep=pre: crc32c").
func module(name string, exports, needs []string, info ...string) string {
	type section struct {
		name    string
		kind    elf.SectionType
		link    uint32
		size    uint64 // of an entry
		content []byte
	}
	var symbols bytes.Buffer
	names := "\x00"
	put(&symbols, elf.Sym64{})
	for _, n := range needs {
		put(&symbols, elf.Sym64{Name: uint32(len(names)), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_NOTYPE), Shndx: uint16(elf.SHN_UNDEF)})
		names += n + "\x00"
	}
	sections := []section{
		{},
		{name: ".modinfo", kind: elf.SHT_PROGBITS, content: []byte(strings.Join(append(info, "name="+name, "license=GPL", ""), "\x00"))},
		{name: "__ksymtab_strings", kind: elf.SHT_PROGBITS, content: []byte(strings.Join(append(exports, ""), "\x00"))},
		{name: ".symtab", kind: elf.SHT_SYMTAB, link: 4, size: elf.Sym64Size, content: symbols.Bytes()},
		{name: ".strtab", kind: elf.SHT_STRTAB, content: []byte(names)},
		{name: ".shstrtab", kind: elf.SHT_STRTAB},
	}
	var strtab []byte
	for _, s := range sections {
		strtab = append(append(strtab, s.name...), 0)
	}
	sections[5].content = strtab

	var headers, body bytes.Buffer
	start := uint64(binary.Size(elf.Header64{}) + len(sections)*binary.Size(elf.Section64{}))
	at := 0
	for _, s := range sections {
		put(&headers, elf.Section64{
			Name: uint32(at), Type: uint32(s.kind), Off: start + uint64(body.Len()), Size: uint64(len(s.content)),
			Link: s.link, Entsize: s.size, Addralign: 1,
		})
		body.Write(s.content)
		at += len(s.name) + 1
	}
	var file bytes.Buffer
	put(&file, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: uint64(binary.Size(elf.Header64{})), Ehsize: uint16(binary.Size(elf.Header64{})),
		Shentsize: uint16(binary.Size(elf.Section64{})), Shnum: uint16(len(sections)), Shstrndx: 5,
	})
	file.Write(headers.Bytes())
	file.Write(body.Bytes())
	return file.String()
}

func put(b *bytes.Buffer, v any) {
	if err := binary.Write(b, binary.LittleEndian, v); err != nil {
		panic(err) // a buffer accepts everything
	}
}
