package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// packet is a captured packet, starting at its network header.
type packet struct {
	at       time.Time
	link     int    // index of the device
	arphrd   uint16 // its hardware type
	protocol uint16 // EtherType
	kind     uint8  // PACKET_*
	hardware []byte // the sender's link address
	data     []byte // at most snaplen bytes; valid until the next packet
	length   int    // length on the link
}

// socket receives packets in a network namespace.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	data []byte
	oob  []byte
}

const (
	// captureBuffer is the size of the receive buffer: some ten thousand headers, for while we are
	// not scheduled.
	captureBuffer = 8 << 20
	auxDataLen    = 20 // struct tpacket_auxdata
)

// openCapture opens a socket in the namespace that receives the packets matching the filter, from
// one device, or from all if link is 0. The caller must close it.
func openCapture(h operation.Host, p *place, f filter, link int, snaplen uint32) (*socket, error) {
	program, err := f.program(snaplen)
	if err != nil {
		return nil, err
	}
	code, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	s := &socket{data: make([]byte, snaplen), oob: make([]byte, unix.CmsgSpace(auxDataLen)+unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))))}
	err = netlook.Within(h.FS, p.inode, p.pid, func() error {
		// With protocol 0 it receives nothing until the filter is attached.
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("socket: %w (needs CAP_NET_RAW)", err)
		}
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		s.file = os.NewFile(uintptr(fd), "packets")
		filter := make([]unix.SockFilter, len(code))
		for i, c := range code {
			filter[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
		}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
			return os.NewSyscallError("attach filter", err)
		}
		// Without CAP_NET_ADMIN over the node, the node's limit applies.
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer) != nil {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, captureBuffer); err != nil {
				return os.NewSyscallError("receive buffer", err)
			}
		}
		if err := errors.Join(
			os.NewSyscallError("timestamps", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)),
			os.NewSyscallError("auxdata", unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))); err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL)
		return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: link}))
	})
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("capture in %s: %w", p, err)
	}
	return s, nil
}

func (s *socket) close() {
	if s.file != nil {
		_ = s.file.Close() // nothing was written to it
	}
}

// next waits for a packet, at most until the deadline (os.ErrDeadlineExceeded) or the end of ctx.
func (s *socket) next(p *packet) error {
	var err error
	if rawErr := s.raw.Read(func(fd uintptr) bool {
		var n, oob, flags int
		var from unix.Sockaddr
		n, oob, flags, from, err = unix.Recvmsg(int(fd), s.data, s.oob, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return false
		}
		if err != nil {
			return true
		}
		*p = packet{data: s.data[:n], length: n, at: time.Now()}
		if flags&unix.MSG_CTRUNC == 0 {
			err = p.control(s.oob[:oob])
		}
		if a, ok := from.(*unix.SockaddrLinklayer); ok {
			p.link, p.arphrd, p.kind = a.Ifindex, a.Hatype, a.Pkttype
			p.protocol = a.Protocol<<8 | a.Protocol>>8
			p.hardware = a.Addr[:min(int(a.Halen), len(a.Addr))]
		}
		return true
	}); rawErr != nil {
		return rawErr
	}
	return err
}

// control reads the time and the length on the link from the control messages.
func (p *packet) control(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("control message: %w", err)
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})):
			ts := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			p.at = time.Unix(ts.Unix())
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= auxDataLen:
			p.length = int(binary.NativeEndian.Uint32(m.Data[4:]))
		}
	}
	return nil
}

// dropped returns how many packets the kernel dropped for lack of buffer space since the last call.
func (s *socket) dropped() (n uint32, err error) {
	rawErr := s.raw.Control(func(fd uintptr) {
		var stats *unix.TpacketStats
		if stats, err = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			n = stats.Drops
		}
	})
	return n, errors.Join(rawErr, err)
}

// run passes packets to fn until the duration is over (io.EOF), fn returns an error, or ctx ends. A
// packet on the loopback device is captured twice; run passes it only once.
func (s *socket) run(ctx context.Context, duration time.Duration, fn func(*packet) error) error {
	if err := s.file.SetReadDeadline(time.Now().Add(duration)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = s.file.SetReadDeadline(time.Unix(1, 0)) // fails only if it is closed already
	})
	defer stop()
	var p packet
	for {
		err := s.next(&p)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return io.EOF
		case errors.Is(err, unix.ENETDOWN):
			continue // a device went down; others may be up
		case err != nil:
			return err
		case p.arphrd == unix.ARPHRD_LOOPBACK && p.kind == unix.PACKET_OUTGOING:
			continue
		}
		if err := fn(&p); err != nil {
			return err
		}
	}
}
