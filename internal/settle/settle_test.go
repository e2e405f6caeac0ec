// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package settle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestOf(t *testing.T) {
	plain := errors.New("refused connection")
	throttle := exporterhelper.NewThrottleRetry(plain, 3*time.Second)
	for _, c := range []struct {
		name      string
		err       error
		cancelled bool
		want      Verdict
	}{
		{"plain", plain, false, Verdict{Class: Retryable}},
		{"gRPC unavailable", status.Error(codes.Unavailable, "away"), false, Verdict{Class: Retryable}},
		{"throttle", throttle, false, Verdict{Class: Throttled, Delay: 3 * time.Second}},
		{"wrapped throttle", fmt.Errorf("export: %w", throttle), false, Verdict{Class: Throttled, Delay: 3 * time.Second}},
		{"joined throttles, the longest counts", errors.Join(plain, throttle, exporterhelper.NewThrottleRetry(plain, 5*time.Second)), false, Verdict{Class: Throttled, Delay: 5 * time.Second}},
		{"permanent", consumererror.NewPermanent(plain), false, Verdict{Class: Permanent}},
		{"wrapped permanent", fmt.Errorf("export: %w", consumererror.NewPermanent(plain)), false, Verdict{Class: Permanent}},
		{"permanent throttle", consumererror.NewPermanent(throttle), false, Verdict{Class: Permanent}},
		{"OTLP status 400", consumererror.NewOTLPHTTPError(plain, 400), false, Verdict{Class: Permanent}},
		{"OTLP status 503", consumererror.NewOTLPHTTPError(plain, 503), false, Verdict{Class: Retryable}},
		{"our own timeout", context.DeadlineExceeded, true, Verdict{Class: Unknown}},
		{"our own cancellation, called permanent", consumererror.NewPermanent(context.Canceled), true, Verdict{Class: Unknown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, Of(c.err, c.cancelled))
		})
	}
}

// The type is not exported: if exporterhelper renames it or its field, delays
// would silently be ignored.
func TestThrottleErrorIsRecognised(t *testing.T) {
	assert.Equal(t, time.Minute, throttleDelay(exporterhelper.NewThrottleRetry(errors.New("slow down"), time.Minute)))
	assert.Zero(t, throttleDelay(errors.New("slow down")))
}
