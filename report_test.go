// Copyright The Batcher Exporter Authors
// SPDX-License-Identifier: Apache-2.0

package batcherexporter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// watchedReport is a report whose lines and statuses are kept.
type watchedReport struct {
	*report
	logs *observer.ObservedLogs

	mu    sync.Mutex
	told  []error
	stats queueStats
}

// watchReport makes a report with a patience of 30 s, of a queue with room.
func watchReport(t *testing.T, level zapcore.Level, options ...zap.Option) *watchedReport {
	t.Helper()
	core, logs := observer.New(level)
	w := &watchedReport{logs: logs, stats: queueStats{Size: 3, Capacity: 10}}
	w.report = newReport(reportSettings{
		logger: zap.New(core, options...), source: "batcher, logs", patience: 30 * time.Second,
		status: func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, err)
		},
		stats: func() queueStats {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.stats
		},
	})
	t.Cleanup(w.close)
	return w
}

func (w *watchedReport) fill(size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Size = size
}

// statuses are those told so far, as texts; empty: all is well.
func (w *watchedReport) statuses() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := []string{}
	for _, err := range w.told {
		if err == nil {
			texts = append(texts, "")
		} else {
			texts = append(texts, err.Error())
		}
	}
	return texts
}

// sumOfField adds up a field over all lines that have it.
func sumOfField(logs *observer.ObservedLogs, field string) (sum int64, lines int) {
	for _, e := range logs.All() {
		if v, ok := e.ContextMap()[field].(int64); ok {
			sum += v
			lines++
		}
	}
	return sum, lines
}

// Many small losses are a few lines that add up, the last of them although nothing
// happens any more.
func TestReport_LossesAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchReport(t, zap.InfoLevel)
		for i := range 2000 {
			w.dropped(dropPermanent, 10, fmt.Errorf("cause %d", i))
			if i%2 == 0 {
				w.dropped(dropTooLarge, 1, errBad)
			}
			time.Sleep(60 * time.Millisecond)
		}
		runFor(2 * longestPause)
		sum, lines := sumOfField(w.logs, "dropped_items")
		assert.EqualValues(t, 21_000, sum)
		assert.Equal(t, 2*5, lines, "at once, after 10, 30, 70 and 130 s")
		permanent := w.logs.FilterMessage(dropMessages[dropPermanent]).All()
		require.Len(t, permanent, 5)
		first, second := permanent[0].ContextMap(), permanent[1].ContextMap()
		assert.Equal(t, map[string]any{
			"reason": "permanent", "dropped_items": int64(10), "error": "cause 0", "queue_size": int64(3), "queue_capacity": int64(10),
		}, first)
		assert.Equal(t, "cause 1", second["error"], "the first cause since")
		assert.Equal(t, "10s", second["within"])
		assert.Equal(t, zap.ErrorLevel, permanent[1].Level)
	})
}

// After a quiet time the next line comes at once again.
func TestReport_PauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchReport(t, zap.InfoLevel)
		for range 3 {
			w.dropped(dropPermanent, 1, errBad)
			w.dropped(dropPermanent, 1, errBad)
			w.dropped(dropPermanent, 1, errBad)
			time.Sleep(time.Hour)
		}
		var sums []any
		for _, e := range w.logs.All() {
			sums = append(sums, e.ContextMap()["dropped_items"])
		}
		assert.Equal(t, []any{int64(1), int64(2), int64(1), int64(2), int64(1), int64(2)}, sums)
	})
}

// close writes what waits for its line, and no timer is left.
func TestReport_CloseWritesWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchReport(t, zap.InfoLevel)
		for range 100 {
			w.dropped(dropRetriesExhausted, 2, errAway)
			w.refused(3, exporterhelper.ErrQueueIsFull)
			w.refused(5, errStopping)
			w.rejected(7, "")
		}
		w.close()
		w.close()
		for field, want := range map[string]int64{"dropped_items": 200, "refused_items": 800, "rejected_items": 700} {
			sum, _ := sumOfField(w.logs, field)
			assert.Equal(t, want, sum, field)
		}
		assert.Equal(t, 4*2+1, w.logs.Len(), "and one that there is room")
		runFor(time.Hour)
		assert.Equal(t, 4*2+1, w.logs.Len())
	})
}

// Refusals have a line for each cause, and one when there is room again: not while
// the queue takes and refuses by turns, and not while it is full.
func TestReport_Refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchReport(t, zap.InfoLevel)
		w.fill(10)
		full := fmt.Errorf("%w: 10 of 10 requests are taken", exporterhelper.ErrQueueIsFull)
		for range 60 {
			w.refused(10, full)
			time.Sleep(time.Second)
		}
		w.refused(4, errStopping)
		w.refused(2, consumererror.NewPermanent(errors.New("can never fit")))
		runFor(time.Minute)
		room := func() []observer.LoggedEntry { return w.logs.FilterMessage("The queue has room again.").All() }
		assert.Empty(t, room())
		w.fill(9)
		runFor(roomAfter)
		require.Len(t, room(), 1)
		fields := room()[0].ContextMap()
		assert.EqualValues(t, 600, fields["refused_in_all"])
		assert.Equal(t, "59s", fields["full_for"])
		sum, lines := sumOfField(w.logs, "refused_items")
		assert.EqualValues(t, 606, sum)
		assert.Equal(t, 4+1+1, lines)
		assert.Equal(t, zap.ErrorLevel, w.logs.FilterMessage("The queue is full. Requests are refused.").All()[0].Level)
		runFor(time.Hour)
		assert.Len(t, room(), 1)
	})
}

// An outage is a line at once, one now and then, and one with its length and cost.
func TestReport_Outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchReport(t, zap.DebugLevel)
		w.passed()
		for range 120 {
			w.failed(errAway, false)
			w.waits(errAway, 1500*time.Millisecond, 8)
			w.refused(5, exporterhelper.ErrQueueIsFull)
			time.Sleep(time.Second)
		}
		w.dropped(dropRetriesExhausted, 40, errAway)
		w.passed()
		w.passed()

		retries := w.logs.FilterMessage(retryMessage).FilterLevelExact(zap.InfoLevel).All()
		require.Len(t, retries, 1)
		assert.Equal(t, "1.5s", retries[0].ContextMap()["interval"])
		assert.EqualValues(t, 8, retries[0].ContextMap()["items"])
		assert.Len(t, w.logs.FilterMessageSnippet("keeps failing").All(), 3)
		over := w.logs.FilterMessage("The backend takes data again.").All()
		require.Len(t, over, 1)
		assert.Equal(t, map[string]any{
			"outage": "2m0s", "attempts": int64(120), "cost_dropped": int64(40), "cost_refused": int64(600),
			"queue_size": int64(3), "queue_capacity": int64(10),
		}, over[0].ContextMap())
		assert.Len(t, w.logs.FilterLevelExact(zap.DebugLevel).All(), 119)
	})
}

// A backend that fails now and then is no outage per failure.
func TestReport_NowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchReport(t, zap.InfoLevel)
		for range 1000 {
			w.failed(errAway, false)
			w.waits(errAway, time.Second, 8)
			w.dropped(dropRetriesExhausted, 1, errAway)
			time.Sleep(50 * time.Millisecond)
			w.passed()
			time.Sleep(50 * time.Millisecond)
		}
		assert.Less(t, w.logs.Len(), 25, "in 100 s: %v", w.logs.All())
		assert.LessOrEqual(t, len(w.statuses()), 20)
		w.close()
		sum, _ := sumOfField(w.logs, "dropped_items")
		assert.EqualValues(t, 1000, sum)
	})
}

// The collector learns of an error that lasts and of its end, each once.
func TestReport_Status(t *testing.T) {
	row := func(name string, want []string, f func(w *watchedReport)) {
		inBubble(t, name, func(t *testing.T) {
			w := watchReport(t, zap.InfoLevel)
			f(w)
			assert.Equal(t, want, w.statuses())
		})
	}
	away := errAway.Error()
	row("failures that pass", []string{}, func(w *watchedReport) {
		for range 10 {
			w.failed(errAway, false)
			time.Sleep(29 * time.Second)
			w.passed()
		}
	})
	row("longer than the longest backoff", []string{away, ""}, func(w *watchedReport) {
		w.failed(errAway, false)
		runFor(31 * time.Second) // no other attempt is needed
		w.failed(errBad, false)
		runFor(time.Hour)
		w.passed()
		w.passed()
		runFor(time.Hour)
	})
	row("retries are exhausted", []string{away, ""}, func(w *watchedReport) {
		w.dropped(dropRetriesExhausted, 1, errAway)
		w.dropped(dropRetriesExhausted, 1, errBad)
		w.passed()
	})
	row("what is lost for itself", []string{}, func(w *watchedReport) {
		w.dropped(dropPermanent, 1, errBad)
		w.dropped(dropTooLarge, 1, errBad)
		w.dropped(dropRefused, 1, errBad)
		runFor(time.Hour)
	})
	row("the destination refuses", []string{errLogin.Error(), ""}, func(w *watchedReport) {
		w.failed(errLogin, true)
		w.failed(errLogin, true)
		w.passed()
		assert.Len(t, w.logs.FilterMessage("The destination accepts data again.").All(), 1)
	})
	row("again at once", []string{away, "", away}, func(w *watchedReport) {
		w.dropped(dropRetriesExhausted, 1, errAway)
		w.passed()
		w.dropped(dropRetriesExhausted, 1, errAway)
		assert.Len(t, w.statuses(), 2, "not yet")
		runFor(steadyAfter)
	})
}

// Sampling as the collector does it takes no line, though many exporters have the
// same to say.
func TestReport_SamplingTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		logger := zap.New(zapcore.NewSamplerWithOptions(core, 10*time.Second, 10, 100))
		for i := range 40 {
			r := newReport(reportSettings{
				logger: logger, source: fmt.Sprintf("batcher/%d, logs", i), patience: time.Minute,
				stats: emptyQueue, status: func(error) {},
			})
			for range 100 {
				r.dropped(dropShutdown, 5, errStopping)
			}
			r.close()
		}
		sum, lines := sumOfField(logs, "dropped_items")
		assert.EqualValues(t, 40*100*5, sum)
		assert.Equal(t, 80, lines)
	})
}

// A level that the log does not have is not forced upon it, and lines carry no
// stack.
func TestReport_Levels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchReport(t, zap.ErrorLevel, zap.AddStacktrace(zap.ErrorLevel))
		w.failed(errAway, false)
		w.waits(errAway, time.Second, 1)
		w.rejected(1, "no")
		w.dropped(dropPermanent, 1, errBad)
		require.Equal(t, 1, w.logs.Len())
		assert.Empty(t, w.logs.All()[0].Stack)
	})
}

// A reason that has no text of its own is told all the same.
func TestReport_UnknownReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchReport(t, zap.InfoLevel)
		w.dropped("sunspots", 1, errBad)
		assert.Equal(t, "Dropping data: sunspots.", w.logs.All()[0].Message)
	})
	for _, reason := range dropReasons {
		assert.Contains(t, dropMessages, reason)
	}
}

func TestShortText(t *testing.T) {
	assert.Empty(t, shortText(nil))
	assert.Equal(t, "away", shortText(errors.New("away")))
	exact := strings.Repeat("x", maxTextBytes)
	assert.Equal(t, exact, shortText(errors.New(exact)))
	for _, filler := range []string{"x", "ä", "€"} {
		short := shortText(errors.New("y" + strings.Repeat(filler, 1000)))
		assert.LessOrEqual(t, len(short), maxTextBytes)
		assert.Greater(t, len(short), maxTextBytes-4)
		assert.True(t, strings.HasSuffix(short, filler+"…"), short)
	}
}

func TestItemsOf(t *testing.T) {
	assert.Equal(t, "0 items", itemsOf(0))
	assert.Equal(t, "1 item", itemsOf(int64(1)))
	assert.Equal(t, "2 items", itemsOf(2))
}

// Events from everywhere at once are all told.
func TestReport_Concurrent(t *testing.T) {
	const goroutines, rounds = 8, 200
	w := watchReport(t, zap.InfoLevel)
	var running sync.WaitGroup
	for range goroutines {
		running.Go(func() {
			for range rounds {
				w.failed(errAway, true)
				w.waits(errAway, time.Second, 1)
				w.dropped(dropRetriesExhausted, 1, errAway)
				w.refused(1, exporterhelper.ErrQueueIsFull)
				w.passed()
			}
		})
	}
	running.Wait()
	w.close()
	for _, field := range []string{"dropped_items", "refused_items"} {
		sum, _ := sumOfField(w.logs, field)
		assert.EqualValues(t, goroutines*rounds, sum, field)
	}
}

// The log of an outage of two minutes with a full queue fits one screen, and its
// numbers are those of the metrics.
func TestReport_OutageFitsOneScreen(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		var up atomic.Bool
		r := startRig(t, k, &sink{answer: func(context.Context, *call) error {
			if up.Load() {
				return nil
			}
			return errAway
		}}, "retry_on_failure: {max_elapsed_time: 50s}\nsending_queue: {queue_size: 50, batch: {min_size: 10, max_size: 10}}")
		for i := range int64(1200) {
			_ = r.send(k.simple(5, 5*i))
			time.Sleep(100 * time.Millisecond)
		}
		up.Store(true)
		runFor(2 * time.Minute)
		require.NoError(t, r.stop())
		lines := r.logged.Filter(func(e observer.LoggedEntry) bool { return e.Level >= zap.InfoLevel })
		assert.LessOrEqual(t, lines.Len(), 40)
		refused, _ := sumOfField(lines, "refused_items")
		assert.Positive(t, refused)
		assert.Equal(t, r.metric("enqueue_failed_"+k.items), refused)
		dropped, _ := sumOfField(lines, "dropped_items")
		assert.Positive(t, dropped)
		assert.Equal(t, r.metric("batcher_dropped_items"), dropped)
		assert.Len(t, lines.FilterMessage("The queue has room again.").All(), 1)
		over := lines.FilterMessage("The backend takes data again.").All()
		require.Len(t, over, 1)
		assert.EqualValues(t, dropped, over[0].ContextMap()["cost_dropped"])
	})
}
