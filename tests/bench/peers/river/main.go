// A worker of River that does nothing, and the migration of its tables.
//
//	river install
//	river worker default|tuned drain|latency
//
// Connects as PG* in the environment says. As a worker it speaks the lines of common.mjs.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sys/unix"
)

type noop struct {
	ID int64 `json:"id"`
}

func (noop) Kind() string { return "noop" }

type worker struct {
	river.WorkerDefaults[noop]
	stamps bool
	done   atomic.Int64
}

func (w *worker) Work(_ context.Context, job *river.Job[noop]) error {
	if w.stamps {
		var now unix.Timespec
		unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		fmt.Printf("start %d %d\n", job.Args.ID, now.Nano())
	}
	w.done.Add(1)
	return nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func install(ctx context.Context, pool *pgxpool.Pool) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)
}

// Says how many jobs are done, at most every 10 ms.
func sayCount(w *worker) {
	var said int64
	for range time.Tick(10 * time.Millisecond) {
		if done := w.done.Load(); done != said {
			said = done
			fmt.Printf("n %d\n", done)
		}
	}
}

func work(ctx context.Context, pool *pgxpool.Pool, config, mode string) {
	w := &worker{stamps: mode == "latency"}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	options := &river.Config{
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers: workers,
	}
	if config == "tuned" {
		options.FetchCooldown = 2 * time.Millisecond
		options.FetchPollInterval = 20 * time.Millisecond
		options.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: 2000}
	}
	client, err := river.NewClient(riverpgxv5.New(pool), options)
	check(err)
	input := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	input.Scan() // go
	check(client.Start(ctx))
	go sayCount(w)
	input.Scan() // stop
	check(client.Stop(ctx))
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "pool_max_conns=10")
	check(err)
	defer pool.Close()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "install":
		install(ctx, pool)
	case len(os.Args) == 4 && os.Args[1] == "worker":
		work(ctx, pool, os.Args[2], os.Args[3])
	default:
		log.Fatal("usage: river install | river worker default|tuned drain|latency")
	}
}
