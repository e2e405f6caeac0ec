// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pullbatch/batcherexporter/bench/internal/input"
)

const (
	// maxInFlight bounds the requests without a reply. A collector that is so far
	// behind gets less than the load's rate, and that shows in what was sent.
	maxInFlight = 2000

	// callTimeout is longer than a reply takes in any run that is worth its figures.
	callTimeout = 20 * time.Second

	// tick is how often the load looks what is due. A shorter one would measure
	// timers.
	tick = 500 * time.Microsecond

	// variety is how many different requests are sent in turn.
	variety = 100
)

// Load is requests of log records at a steady rate.
type Load struct {
	Items int           // of each request
	Every time.Duration // one request
	For   time.Duration
}

// Sent is what came of a load.
type Sent struct {
	Records   int
	Refused   int             // records of requests that got an error
	Err       error           // the first of those errors
	Latencies []time.Duration // of each request, from the call to the reply
}

// Sending is a load under way: its requests have all been sent, and replies to the
// last may be missing.
type Sending struct {
	client    plogotlp.GRPCClient
	close     func() error
	templates []plog.Logs
	slots     chan struct{} // taken by requests in flight
	calls     sync.WaitGroup

	mu   sync.Mutex
	sent Sent
}

// Send sends the load to an address, and returns when the last request was sent.
func (l Load) Send(ctx context.Context, address string) (*Sending, error) {
	conn, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	s := &Sending{
		client: plogotlp.NewGRPCClient(conn), close: conn.Close,
		templates: l.templates(), slots: make(chan struct{}, maxInFlight),
	}
	if err := l.pace(ctx, s); err != nil {
		_, _ = s.Wait()
		return nil, err
	}
	return s, nil
}

// connect returns a connection that is ready: to open it is no part of a request's
// latency.
func connect(ctx context.Context, address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			_ = conn.Close()
			return nil, fmt.Errorf("no connection to %s (%s): %w", address, state, context.Cause(ctx))
		}
	}
	return conn, nil
}

// pace starts what is due by the clock at each tick, so that neither a late tick nor
// a slow reply lowers the rate.
func (l Load) pace(ctx context.Context, s *Sending) error {
	ticker := time.NewTicker(max(tick, l.Every))
	defer ticker.Stop()
	period, cancel := context.WithTimeout(ctx, l.For)
	defer cancel()
	began, total := time.Now(), int(l.For/l.Every)
	for n := 0; n < total; {
		for due := min(total, int(time.Since(began)/l.Every)+1); n < due; n++ {
			if !s.admit(period) {
				return context.Cause(ctx) // nil if only the period is over
			}
			s.start(ctx, n)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// admit takes a slot, and waits for it until the period is over.
func (s *Sending) admit(period context.Context) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	select {
	case s.slots <- struct{}{}:
		return true
	case <-period.Done():
		return false
	}
}

func (s *Sending) start(ctx context.Context, n int) {
	s.calls.Go(func() {
		defer func() { <-s.slots }()
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		data := plog.NewLogs()
		s.templates[n%len(s.templates)].CopyTo(data)
		began := time.Now()
		stamp(data, began)
		_, err := s.client.Export(ctx, plogotlp.NewExportRequestFromLogs(data))
		s.note(data.LogRecordCount(), time.Since(began), err)
	})
}

func (s *Sending) note(records int, latency time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent.Records += records
	s.sent.Latencies = append(s.sent.Latencies, latency)
	if err == nil {
		return
	}
	s.sent.Refused += records
	if s.sent.Err == nil {
		s.sent.Err = err
	}
}

// Wait returns when every request has got its reply.
func (s *Sending) Wait() (Sent, error) {
	s.calls.Wait()
	return s.sent, s.close()
}

// templates are the requests that are sent in turn. Their bodies are JSON, for
// processors that parse it.
func (l Load) templates() []plog.Logs {
	all := make([]plog.Logs, 0, variety)
	n := 0
	for _, data := range (input.Spec{Signal: input.Logs, Items: l.Items, Total: variety * l.Items, Resources: 1}).Requests() {
		request := data.(plog.Logs)
		for record := range records(request) {
			record.Body().SetStr(body(n))
			n++
		}
		all = append(all, request)
	}
	return all
}

// body is about as long as the bodies of package input.
func body(n int) string {
	return fmt.Sprintf(`{"level":"info","order":"%010d","contact":"user-%05d@shop.example","card":"4111-1111-1111-%04d",`+
		`"amount":%d.5,"lines":[{"sku":"a-%d","n":2},{"sku":"b-%d","n":1}],"next":"billing"}`,
		n, n*7919%100_000, n%10_000, n%977, n%89, n%97)
}

func stamp(data plog.Logs, moment time.Time) {
	t := pcommon.NewTimestampFromTime(moment)
	for record := range records(data) {
		record.SetObservedTimestamp(t)
	}
}

// records are those of all resources.
func records(data plog.Logs) iter.Seq[plog.LogRecord] {
	return func(yield func(plog.LogRecord) bool) {
		for _, rl := range data.ResourceLogs().All() {
			for _, sl := range rl.ScopeLogs().All() {
				for _, record := range sl.LogRecords().All() {
					if !yield(record) {
						return
					}
				}
			}
		}
	}
}
