package bpf

// Objects and bindings are committed, so that building needs no clang. "make generate" rebuilds
// them with the clang version below; "make verify" fails when the result differs from what is
// committed.
//
// -mcpu=v3: kernel 5.10 supports no later instruction set.

//go:generate go tool bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -Iheaders" Oomkill oomkill.bpf.c
//go:generate go tool bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -Iheaders" Hungtask hungtask.bpf.c
//go:generate go tool bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -Iheaders" Sockfail sockfail.bpf.c
//go:generate go tool bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -Iheaders" Diskio diskio.bpf.c
//go:generate go tool bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -Iheaders" Fserror fserror.bpf.c
//go:generate go tool bpf2go -cc clang-16 -strip llvm-strip-16 -target bpfel -no-global-types -cflags "-O2 -g -Wall -Werror -mcpu=v3 -Iheaders" Hwerror hwerror.bpf.c
