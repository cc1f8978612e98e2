package hooks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The last try is often cut short; what an earlier one has met says more.
func TestTheCauseIsWhatWasSeenNotThatTimeRanOut(t *testing.T) {
	var asked atomic.Int64
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		<-done
	}))
	defer server.Close()
	defer close(done)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	r := Request{Method: http.MethodPost, URL: server.URL}
	err := r.Send(ctx)
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("after %d tries: %v", asked.Load(), err)
	}
	if asked.Load() < 2 {
		t.Errorf("asked %d times", asked.Load())
	}
}
