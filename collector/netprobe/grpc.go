package netprobe

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// ErrNoHealth: the server does not implement the health service.
var ErrNoHealth = errors.New("the server does not implement the gRPC health protocol (grpc.health.v1.Health)")

func (p *Probe) grpc(ctx context.Context, at *Progress) error {
	var dialErr error
	c, err := grpc.NewClient("passthrough:///"+p.To.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(Agent), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			c, err := p.dial(at, p.To.Port())
			at.mu.Lock()
			defer at.mu.Unlock()
			dialErr, at.requested = err, time.Now()
			return c, err
		}))
	if err != nil {
		return err
	}
	defer c.Close()
	answer, err := health.NewHealthClient(c).Check(ctx, &health.HealthCheckRequest{Service: p.Service})
	at.mu.Lock()
	defer at.mu.Unlock()
	if dialErr != nil {
		return dialErr
	}
	if err != nil {
		if at.r.Phase == PhaseRequest {
			at.r.Phase = PhaseAnswer
		}
		switch s := status.Convert(err); s.Code() {
		case codes.Unimplemented:
			return ErrNoHealth
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled: // no answer
		default:
			at.r.Status, at.r.Body = s.Code().String(), s.Message()[:min(len(s.Message()), maxSaid)]
		}
		return err
	}
	at.r.FirstByte, at.r.Status = time.Since(at.requested), answer.GetStatus().String()
	if answer.GetStatus() != health.HealthCheckResponse_SERVING {
		at.r.Phase = PhaseAnswer
		return &StatusError{Status: at.r.Status}
	}
	return nil
}
