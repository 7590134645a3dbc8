// The bridge: firings wait in a queue until a thread of the host has answered them.
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>

#include "c/c_api.h"
#include "core/check.h"
#include "core/fork.h"
#include "core/mutex.h"
#include "host/bad_result.h"
#include "host/gate.h"
#include "host/limit.h"
#include "host/run_state.h"
#include "host/spin.h"

namespace postern::internal::c {

using namespace std::chrono_literals;

struct Request {
  Request(const std::string& function, const Attributes& a, const CallInfo& info, Operands in,
          Results out)
      : firing(function, a, info, in, out), run(info.run_state) {}
  Firing firing;
  const detail::StopState* run;
  pn_request view{};
  bool taken = false;  // by next()
  // So many threads came to write to it, and are done, in turn; while these differ it stays.
  std::uint64_t claims = 0, done = 0;
  // Open: the waiting thread spins. What is answered may be gone the next moment.
  enum State { open, sleeping, answered };
  std::atomic<State> state{open};
  StopCondition woken;  // its own: an answer is for one of many that may sleep
  int code = PN_OK;
  Failure why;
};

/// Whom the bridge tells that something waits. Once it was set anew the earlier one is not called.
class Notifier {
 public:
  void set(void (*ready)(void*), void* user) {
    auto told = std::make_shared<Told>(ready, user);
    std::unique_lock lock(guard_);
    told_.swap(told);
    lock.unlock();
    if (told) told->gate.close(true);
  }
  void tell() {
    std::unique_lock lock(guard_);
    const std::shared_ptr<Told> told = told_;
    lock.unlock();
    if (!told || !told->ready) return;
    const host::Gate::Entry inside(told->gate);
    enters_users_code();
    if (inside) told->ready(told->user);
  }

 private:
  struct Told {
    Told(void (*function)(void*), void* with) : ready(function), user(with) {}
    void (*const ready)(void*);
    void* const user;
    host::Gate gate{};
  };
  Mutex guard_;
  std::shared_ptr<Told> told_;
};

/// Shared with the functions that it serves, which may outlive the handle.
class Bridge {
 public:
  Bridge() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE)) {
    if (descriptor_ < 0)
      throw Error(ErrorCode::resource_exhausted,
                  fmt::format("the bridge got no descriptor: {}", std::strerror(errno)));
  }
  ~Bridge() { ::close(descriptor_); }
  Bridge(const Bridge&) = delete;

  /// Puts a request into the queue, on the device's thread, and waits until it is answered: first
  /// it spins, then it sleeps.
  void call(const std::string& function, const Attributes& attributes, const CallInfo& info,
            Operands in, Results out) {
    Request request(function, attributes, info, in, out);
    Lock lock(guard_, std::defer_lock);
    host::acquire(lock);
    refuse_ended();
    request.view = {++tags_, request.firing.view};
    waiting_.push_back(&request);
    try {
      open_.emplace(request.view.tag, &request);
    } catch (...) {
      waiting_.pop_back();
      throw;
    }
    signal();
    const bool wake = sleepers_ > 0, tell = std::exchange(armed_, false);
    lock.unlock();  // before others are woken, who want it
    if (wake) came_.notify_one();
    if (tell) notifier_.tell();
    const auto answered = [&] {
      return request.state.load(std::memory_order_acquire) == Request::answered;
    };
    if (!answers_.until(answered)) sleep_until_answered(request);
    if (request.code != PN_OK) throw_failure(request.code, std::move(request.why));
  }

  /// Takes the request that waits longest; PN_EMPTY where none comes within the limit (none: waits
  /// for ever). A limit that is shorter than a sleep takes is for spinning alone.
  int next(std::optional<std::chrono::nanoseconds> limit, const pn_request** out) {
    refuse_forked();
    const auto most = limit.value_or(std::chrono::nanoseconds::max());
    const auto until = host::after(most);
    const auto ready = [&] { return ended_ || !waiting_.empty(); };
    const auto seems_ready = [&] { return seen_.load(std::memory_order_acquire); };
    requests_.until(seems_ready, most);  // spins, without the lock
    Lock lock(guard_, std::defer_lock);
    host::acquire(lock);
    ++sleepers_;
    if (most > shortest_sleep) came_.wait_until(lock, until, ready);
    --sleepers_;
    if (ended_) return set_last_error(PN_CLOSED, "the bridge is closed");
    armed_ = waiting_.empty();  // call() is to tell whoever hears now that nothing waits
    if (armed_) return PN_EMPTY;
    Request* const request = waiting_.front();
    waiting_.pop_front();
    unsignal();
    request->taken = true;
    *out = &request->view;
    return PN_OK;
  }

  /// Writes the arrays, and answers unless the request is to stay open.
  void reply(std::uint64_t tag, const pn_array* results, std::size_t count, bool stays_open) {
    Lock lock(guard_, std::defer_lock);
    host::acquire(lock);
    Request& request = find(tag);
    const pn_firing& f = request.firing.view;
    if (results) check_results(f, results, count);
    claim(request, lock, stays_open);
    lock.unlock();  // the claim keeps the request here, and others from it
    for (std::size_t i = 0; results && i < count; ++i)
      if (results[i].bytes) std::memmove(f.results[i].data, results[i].data, results[i].bytes);
    if (stays_open)
      unclaim(request);
    else
      answer(request);
  }

  void fail(std::uint64_t tag, int code, Failure why) {
    Lock lock(guard_);
    Request& request = find(tag);
    claim(request, lock, false);
    lock.unlock();
    request.code = code == PN_OK ? static_cast<int>(PN_UNKNOWN) : code;
    request.why = std::move(why);
    answer(request);
  }

  int stopped(std::uint64_t tag) {
    std::scoped_lock lock(guard_);
    const auto found = open_.find(tag);
    if (found == open_.end()) return -1;
    return StopToken(found->second->run).stop_requested();
  }

  /// What was taken stays open.
  void end() { finish(false); }
  void close() { finish(true); }
  void notify(void (*ready)(void*), void* user) { notifier_.set(ready, user); }

  /// From the first time on that it is asked for, it says how many requests wait.
  int descriptor() {
    std::scoped_lock lock(guard_);
    if (!watched_ && !ended_ && !waiting_.empty())
      static_cast<void>(eventfd_write(descriptor_, waiting_.size()));
    if (!watched_ && ended_) static_cast<void>(eventfd_write(descriptor_, 1));
    watched_ = true;
    return descriptor_;
  }

 private:
  using Lock = std::unique_lock<Mutex>;
  // To be put to sleep and woken takes longer than this.
  static constexpr std::chrono::nanoseconds shortest_sleep = 50us;

  void finish(bool close) {
    Lock lock(guard_);
    ended_ = true;
    closed_ = closed_ || close;
    signal();
    came_.notify_all();
    for (const auto& [tag, request] : open_) request->woken.notify_one();
    const bool tell = std::exchange(armed_, false);
    lock.unlock();
    if (tell) notifier_.tell();
  }

  // What has a code of its own at the caller keeps it.
  [[noreturn]] static void throw_failure(int code, Failure why) {
    switch (code) {
      case PN_BAD_RESULT: throw host::BadResult(why.text);
      case PN_TIMEOUT: throw host::NoAnswer(why.text);
      case PN_CLOSED:
      case PN_UNREGISTERED:
        throw CallbackError(static_cast<ErrorCode>(code), why.text, {}, 0, nullptr);
      default: throw HostError(code, std::move(why));
    }
  }
  // Sleeps until the request is answered. Once it was taken its memory stays until then, or until
  // the bridge is closed; what a thread is about to answer stays in any case.
  void sleep_until_answered(Request& request) {
    // A queue's delivery holds up no run, so it goes on when the run is stopped.
    const bool in_delivery = host::nesting() && host::nesting()->delivery;
    Lock lock(guard_);
    auto state = Request::open;
    if (!request.state.compare_exchange_strong(state, Request::sleeping)) return;
    const auto answered = [&] { return request.state.load() == Request::answered; };
    const auto over = [&] {
      if (answered()) return true;
      if (request.claims != request.done) return false;
      return closed_ || (ended_ && !request.taken);
    };
    // The run's stop ends the wait for a thread that takes it, and not the one for the answer.
    host::wait_at(request.woken, lock, in_delivery ? nullptr : request.run,
                  [&] { return over() || request.taken; });
    if (request.taken) request.woken.wait(lock, over);
    if (answered()) return;
    open_.erase(request.view.tag);
    if (!request.taken) {
      std::erase(waiting_, &request);
      unsignal();
    }
    refuse_ended();
    throw Error(ErrorCode::cancelled, "the run was stopped before anybody took the call");
  }
  void refuse_ended() const {
    if (ended_)
      throw CallbackError(ErrorCode::closed, "the bridge that serves this function is closed", {},
                          0, nullptr);
  }
  static void check_results(const pn_firing& f, const pn_array* results, std::size_t count) {
    if (count != f.result_count)
      throw Error(ErrorCode::bad_result, fmt::format("call '{}' has {} results, the reply has {}",
                                                     f.site, f.result_count, count));
    for (std::size_t i = 0; i < count; ++i) {
      const Type want = type_of(f.results[i]), got = type_of(results[i]);
      if (want != got)
        throw Error(ErrorCode::bad_result,
                    fmt::format("result {} of call '{}' is {}, the reply has {}", i, f.site,
                                to_string(want), to_string(got)));
    }
  }
  /// Returns the request, which may be answered: it was taken, and nobody has answered it. Throws
  /// Error(not_found).
  Request& find(std::uint64_t tag) const {
    const auto found = open_.find(tag);
    if (found == open_.end() || !found->second->taken || closed_)
      throw Error(ErrorCode::not_found,
                  fmt::format("no request with tag {} waits for an answer", tag));
    return *found->second;
  }
  /// Waits for its turn to write to it. Who is to answer it takes it from others at once.
  void claim(Request& request, Lock& lock, bool stays_open) {
    const std::uint64_t turn = request.claims++;
    if (!stays_open) open_.erase(request.view.tag);
    written_.wait(lock, [&] { return request.done == turn; });
  }
  void unclaim(Request& request) {
    const std::scoped_lock lock(guard_);
    ++request.done;
    written_.notify_all();
    request.woken.notify_one();  // the bridge may have been closed meanwhile
  }
  void answer(Request& request) {
    auto state = Request::open;
    if (request.state.compare_exchange_strong(state, Request::answered, std::memory_order_acq_rel))
      return;  // the thread that waits for it spins
    // The thread that waits for it sleeps, and goes nowhere without the lock.
    const std::scoped_lock lock(guard_);
    request.state.store(Request::answered, std::memory_order_release);
    request.woken.notify_one();
  }
  /// Notes for next(), and in the descriptor, that one more request waits, or that the bridge is
  /// closed; and that one less waits.
  void signal() {
    seen_.store(true, std::memory_order_release);
    if (watched_) static_cast<void>(eventfd_write(descriptor_, 1));
  }
  void unsignal() {
    if (ended_) return;
    seen_.store(!waiting_.empty(), std::memory_order_release);
    eventfd_t value = 0;
    if (watched_) static_cast<void>(eventfd_read(descriptor_, &value));
  }

  Mutex guard_;
  Condition came_, written_;
  std::deque<Request*> waiting_;
  std::map<std::uint64_t, Request*> open_;
  std::uint64_t tags_ = 0;
  int sleepers_ = 0;     // threads in next()
  bool ended_ = false;   // nothing new is taken
  bool closed_ = false;  // nothing may be answered any more
  bool watched_ = false;
  bool armed_ = false;  // next() has said that nothing waits, and what comes is to be told
  Notifier notifier_;
  const int descriptor_;
  std::atomic<bool> seen_{false};  // that next() has something to return
  host::Spin requests_, answers_;
};

}  // namespace postern::internal::c

using namespace postern;
using namespace postern::internal;
using c::guarded;

struct pn_bridge {
  std::shared_ptr<c::Bridge> bridge = std::make_shared<c::Bridge>();
};

Callee c::callee_of(std::string name, const pn_bridge& bridge, std::shared_ptr<const User> user,
                    bool listens) {
  const auto enter = [name = std::move(name), b = bridge.bridge, held = std::move(user)](
                         const Attributes& attributes, const CallInfo& info, Operands operands,
                         Results results) { b->call(name, attributes, info, operands, results); };
  return callee_of(enter, listens);
}

int pn_bridge_create(pn_bridge** out) {
  return guarded(out != nullptr, "pn_bridge_create: out", [&] { *out = new pn_bridge; });
}

int pn_bridge_serve(pn_bridge* bridge, const char* name, int replace) {
  return guarded(bridge && name, "pn_bridge_serve: bridge or name", [&] {
    register_function(name, c::callee_of(name, *bridge, nullptr), {.replace = replace != 0});
  });
}

int pn_bridge_next(pn_bridge* bridge, int64_t timeout_ns, const pn_request** out) {
  return guarded(bridge && out, "pn_bridge_next: bridge or out",
                 [&] { return bridge->bridge->next(c::limit_of(timeout_ns), out); });
}
int pn_bridge_reply(pn_bridge* bridge, uint64_t tag, const pn_array* results, size_t count) {
  return guarded(bridge != nullptr, "pn_bridge_reply: bridge",
                 [&] { bridge->bridge->reply(tag, results, count, false); });
}
int pn_bridge_fill(pn_bridge* bridge, uint64_t tag, const pn_array* results, size_t count) {
  return guarded(bridge && results, "pn_bridge_fill: bridge or results",
                 [&] { bridge->bridge->reply(tag, results, count, true); });
}
int pn_bridge_fail(pn_bridge* bridge, uint64_t tag, int code, const char* text) {
  return pn_bridge_fail_with(bridge, tag, code, text, nullptr, nullptr);
}
int pn_bridge_fail_with(pn_bridge* bridge, uint64_t tag, int code, const char* text, void* cause,
                        void (*release)(void*)) {
  return guarded([&] {
    c::Failure why{"", c::held(cause, release)};
    check(bridge != nullptr, "pn_bridge_fail: bridge is NULL");
    if (text) why.text = text;
    bridge->bridge->fail(tag, code, std::move(why));
  });
}
int pn_bridge_stopped(const pn_bridge* bridge, uint64_t tag) {
  if (bridge) return bridge->bridge->stopped(tag);
  return -1;
}
int pn_bridge_descriptor(const pn_bridge* bridge) {
  if (bridge) return bridge->bridge->descriptor();
  return -1;
}
int pn_bridge_notify(pn_bridge* bridge, void (*ready)(void*), void* user) {
  return guarded(bridge != nullptr, "pn_bridge_notify: bridge",
                 [&] { bridge->bridge->notify(ready, user); });
}
void pn_bridge_end(pn_bridge* bridge) {
  if (bridge) bridge->bridge->end();
}
void pn_bridge_close(pn_bridge* bridge) {
  if (bridge) bridge->bridge->close();
}
void pn_bridge_free(pn_bridge* bridge) {
  if (bridge) bridge->bridge->notify(nullptr, nullptr);
  pn_bridge_close(bridge);
  delete bridge;
}
