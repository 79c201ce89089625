// A worker that copies a table: one delegated run for each message of its queue.
//
// Run it with the login of the tenant and github.com/rabbitmq/amqp091-go:
// go run worker.go amqp://acme:password@broker/ acme acme.exports
//
// A lost connection ends the process. Its supervisor starts it again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	maxRuns         = 10 // of this worker at one time
	responseTimeout = 10 * time.Second
	retryPause      = time.Second
	maxReason       = 1024 // characters
)

type fields map[string]any

// A call of Harebell. It begins one attempt of one run.
type call struct {
	runID     string
	token     int64
	attempt   int
	heartbeat time.Duration
	body      []byte
}

type response struct {
	OK         bool   `json:"ok"`
	StopReason string `json:"stop_reason"`
	Error      struct{ Code, Reason string }
}

// A rejected report. Harebell has given the run to another attempt, or the report is invalid.
type rejected struct{ reason string }

func (r rejected) Error() string { return r.reason }

// The connection of the reports, with the responses that the worker waits for.
type reporter struct {
	channel *amqp.Channel
	login   string
	tenant  string
	lastID  atomic.Int64
	mutex   sync.Mutex
	waiting map[string]chan response
}

func newReporter(url, tenant string) (*reporter, error) {
	uri, err := amqp.ParseURI(url)
	if err != nil {
		return nil, err
	}
	channel, err := openChannel(url)
	if err != nil {
		return nil, err
	}
	r := &reporter{channel: channel, login: uri.Username, tenant: tenant,
		waiting: map[string]chan response{}}
	deliveries, err := channel.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	go r.dispatch(deliveries)
	return r, nil
}

func (r *reporter) dispatch(deliveries <-chan amqp.Delivery) {
	for delivery := range deliveries {
		var value response
		if err := json.Unmarshal(delivery.Body, &value); err != nil {
			log.Println("unreadable response:", err)
			continue
		}
		r.mutex.Lock()
		if answered := r.waiting[delivery.CorrelationId]; answered != nil {
			answered <- value
			delete(r.waiting, delivery.CorrelationId)
		}
		r.mutex.Unlock()
	}
	log.Fatal("the connection of the reports is lost")
}

// Publishes one report and returns the response. A repeat of a report has no second effect.
func (r *reporter) report(verb string, run call, more fields) (response, error) {
	body := fields{"run_id": run.runID, "fencing_token": run.token}
	for name, value := range more {
		body[name] = value
	}
	content, err := json.Marshal(body)
	if err != nil {
		return response{}, err
	}
	id := fmt.Sprintf("%s/%d/%d/%d", run.runID, run.token, os.Getpid(), r.lastID.Add(1))
	answered := make(chan response, 1)
	r.mutex.Lock()
	r.waiting[id] = answered
	r.mutex.Unlock()
	defer func() {
		r.mutex.Lock()
		delete(r.waiting, id)
		r.mutex.Unlock()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), responseTimeout)
	defer cancel()
	err = r.channel.PublishWithContext(ctx, "harebell.commands", r.tenant+"."+verb, true, false,
		amqp.Publishing{
			ContentType:   "application/json",
			CorrelationId: id,
			MessageId:     id,
			DeliveryMode:  amqp.Persistent,
			ReplyTo:       "amq.rabbitmq.reply-to",
			UserId:        r.login, // the broker verifies this name
			Body:          content,
		})
	if err != nil {
		return response{}, err
	}
	select {
	case value := <-answered:
		if !value.OK {
			return value, rejected{value.Error.Reason + " (" + value.Error.Code + ")"}
		}
		return value, nil
	case <-ctx.Done():
		return response{}, fmt.Errorf("no response to %s", verb)
	}
}

// Repeats a report until Harebell has answered it.
func (r *reporter) deliver(verb string, run call, more fields) (response, error) {
	for {
		value, err := r.report(verb, run, more)
		var refusal rejected
		if err == nil || errors.As(err, &refusal) {
			return value, err
		}
		log.Println("report repeated:", err)
		time.Sleep(retryPause)
	}
}

// The work itself. `ctx` is cancelled if the run must stop.
func exportTable(ctx context.Context, run call) (fields, error) {
	request := struct {
		Table   string
		Steps   int
		Seconds float64
	}{Steps: 3, Seconds: 1}
	if err := json.Unmarshal(run.body, &request); err != nil {
		return nil, err
	}
	for step := 0; step < request.Steps; step++ {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		select {
		case <-time.After(time.Duration(request.Seconds * float64(time.Second))):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return fields{"table": request.Table, "attempt": run.attempt}, nil
}

// Sends one heartbeat and returns whether the work may continue.
func (r *reporter) beat(run call, lost *atomic.Bool) bool {
	value, err := r.deliver("run.heartbeat", run, nil)
	if err != nil {
		log.Println("run lost:", err) // another attempt has the run
		lost.Store(true)
	}
	return err == nil && value.StopReason == ""
}

// Sends heartbeats until the work ends, and stops the work if the run must stop.
func (r *reporter) keepAlive(ctx context.Context, stop context.CancelFunc, run call, lost *atomic.Bool) {
	ticker := time.NewTicker(run.heartbeat / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if !r.beat(run, lost) {
				stop()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// The slots of this worker. A call that waits for a slot has heartbeats and is not acknowledged.
var slots = make(chan struct{}, maxRuns)

func (r *reporter) work(run call, start func() error) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var lost atomic.Bool
	if !r.beat(run, &lost) {
		stop()
	}
	go r.keepAlive(ctx, stop, run, &lost)
	slots <- struct{}{}
	defer func() { <-slots }()
	if err := start(); err != nil { // the lease of the run now protects the work
		return err
	}
	result, err := exportTable(ctx, run)
	if lost.Load() {
		return nil
	}
	if err == nil {
		_, err = r.deliver("run.complete", run, fields{"result": result})
		return err
	}
	code := "worker_failed"
	if ctx.Err() != nil {
		code = "stopped"
	}
	reason := []rune(err.Error())
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	_, err = r.deliver("run.fail", run, fields{"code": code, "reason": string(reason)})
	return err
}

func readCall(delivery amqp.Delivery) (call, error) {
	header := func(name string) string { return fmt.Sprint(delivery.Headers[name]) }
	token, err := strconv.ParseInt(header("Harebell-Fencing-Token"), 10, 64)
	if err != nil {
		return call{}, err
	}
	attempt, err := strconv.Atoi(header("Harebell-Attempt"))
	if err != nil {
		return call{}, err
	}
	seconds, err := strconv.ParseFloat(header("Harebell-Heartbeat"), 64)
	if err != nil {
		return call{}, err
	}
	return call{runID: header("Harebell-Run-Id"), token: token, attempt: attempt,
		heartbeat: time.Duration(seconds * float64(time.Second)), body: delivery.Body}, nil
}

func openChannel(url string) (*amqp.Channel, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	return connection.Channel()
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("The arguments must be the URL of the broker, the tenant and the queue.")
	}
	url, tenant, queue := os.Args[1], os.Args[2], os.Args[3]
	reports, err := newReporter(url, tenant)
	if err != nil {
		log.Fatal(err)
	}
	channel, err := openChannel(url)
	if err != nil {
		log.Fatal(err)
	}
	if err := channel.Qos(maxRuns, 0, false); err != nil {
		log.Fatal(err)
	}
	calls, err := channel.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		log.Fatal(err)
	}
	log.Println("worker started")
	for delivery := range calls {
		run, err := readCall(delivery)
		if err != nil {
			log.Println("message without a run:", err)
			if err := delivery.Reject(false); err != nil {
				log.Fatal(err)
			}
			continue
		}
		delivery := delivery
		go func() {
			if err := reports.work(run, func() error { return delivery.Ack(false) }); err != nil {
				log.Println("report lost:", err)
			}
		}()
	}
	log.Fatal("the connection of the calls is lost")
}
