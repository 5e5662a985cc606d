package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// page is the block size of direct I/O.
const page = 4096

// file does one direct read or write of a page of a file and responds with the name of the error,
// or "ok".
func file(w http.ResponseWriter, r *http.Request) {
	at, err := strconv.Atoi(r.FormValue("page"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	err = direct(r.FormValue("path"), r.FormValue("do") == "write", int64(at)*page)
	said := "ok"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		said = unix.ErrnoName(errno)
	} else if err != nil {
		said = err.Error()
	}
	_, _ = io.WriteString(w, said+"\n")
}

func direct(path string, write bool, at int64) error {
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR | os.O_CREATE
	}
	f, err := os.OpenFile(path, flags|unix.O_DIRECT, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// Page-aligned, as direct I/O requires.
	buf, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map a buffer: %w", err)
	}
	defer func() { _ = unix.Munmap(buf) }()
	if write {
		_, err = unix.Pwrite(int(f.Fd()), buf, at)
	} else {
		_, err = unix.Pread(int(f.Fd()), buf, at)
	}
	return err
}
