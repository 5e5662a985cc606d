package fault

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// CrashProgram returns a program for x86-64 that reads address 0. The kernel prints such a crash
// with the names of the process and of the program's file.
func CrashProgram() []byte {
	const base, headers = 0x400000, 64 + 56
	code := []byte{0x31, 0xc0, 0x8b, 0x00} // xor eax,eax; mov eax,[rax]
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9)) // 64 bit, little endian
	for _, v := range []any{
		uint16(2), uint16(62), uint32(1), uint64(base + headers), uint64(64), uint64(0), // ET_EXEC, EM_X86_64
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), // PT_LOAD, readable and executable
		uint64(headers + len(code)), uint64(headers + len(code)), uint64(0x1000),
	} {
		_ = binary.Write(&b, binary.LittleEndian, v) // a buffer takes everything
	}
	b.Write(code)
	return b.Bytes()
}

// CrashCommand returns the command of a container that crashes as a process and a file with these
// names.
func CrashCommand(process, file string) []string {
	return []string{"/probepod", "crash", process, file}
}
