// Waiting for PJRT's work, with and without a limit.
#include "pjrt/event.h"

#include "core/mutex.h"
#include "pjrt/call.h"

#include <algorithm>
#include <utility>

namespace postern::internal::pjrt {
namespace {

// What PJRT hands back to on_ready's callback: it passes one pointer, and its error must be freed
// through the table.
struct Listener {
  const PJRT_Api* api;
  ReadyCallback callback;
  void* user;
};

void notify(PJRT_Error* error, void* raw) {
  std::unique_ptr<Listener> listener(static_cast<Listener*>(raw));
  if (!error) return listener->callback(listener->user, nullptr);
  Failure failure = take_failure(listener->api, error);
  listener->callback(listener->user, &failure);
}

}  // namespace

// PJRT cannot wait with a limit, nor take a callback back: the state lives on until the callback
// has come.
struct Event::Waiter {
  Mutex mutex;
  Condition changed;
  bool ready = false;
};

Event::Event(Event&& other) noexcept
    : api_(other.api_),
      handle_(std::exchange(other.handle_, nullptr)),
      waiter_(std::move(other.waiter_)) {}

Event& Event::operator=(Event&& other) noexcept {
  Event taken(std::move(other));  // what this held goes with it, now
  std::swap(api_, taken.api_);
  std::swap(handle_, taken.handle_);
  std::swap(waiter_, taken.waiter_);
  return *this;
}

Event::~Event() {
  if (!handle_) return;
  auto args = make_args<PJRT_Event_Destroy_Args>();
  args.event = handle_;
  call_quietly<&PJRT_Api::PJRT_Event_Destroy>(api_, args);
}

bool Event::is_ready() const {
  auto args = make_args<PJRT_Event_IsReady_Args>();
  args.event = handle_;
  call<&PJRT_Api::PJRT_Event_IsReady>(api_, args, "to look at an event");
  return args.is_ready;
}

void Event::await() const {
  auto args = make_args<PJRT_Event_Await_Args>();
  args.event = handle_;
  call<&PJRT_Api::PJRT_Event_Await>(api_, args, "while running");
}

bool Event::wait_for(std::chrono::nanoseconds limit) {
  if (is_ready()) return true;
  if (!waiter_) {
    auto waiter = std::make_shared<Waiter>();
    auto share = std::make_unique<std::shared_ptr<Waiter>>(waiter);
    on_ready(
        [](void* user, const Failure*) noexcept {
          std::unique_ptr<std::shared_ptr<Waiter>> held(
              static_cast<std::shared_ptr<Waiter>*>(user));
          std::lock_guard lock((*held)->mutex);
          (*held)->ready = true;
          (*held)->changed.notify_all();
        },
        share.get());
    share.release();  // the callback's now
    waiter_ = std::move(waiter);
  }
  std::unique_lock lock(waiter_->mutex);
  const std::chrono::nanoseconds year = std::chrono::hours(24 * 365);  // now() + more may overflow
  return waiter_->changed.wait_for(lock, std::min(limit, year), [&] { return waiter_->ready; });
}

std::optional<Failure> Event::error() const {
  if (!is_ready()) return std::nullopt;
  auto args = make_args<PJRT_Event_Error_Args>();
  args.event = handle_;
  PJRT_Error* error = entry<&PJRT_Api::PJRT_Event_Error>(api_, "to read an event's error")(&args);
  if (!error) return std::nullopt;
  return take_failure(api_, error);
}

void Event::on_ready(ReadyCallback callback, void* user) const {
  auto listener = std::make_unique<Listener>(Listener{api_, callback, user});
  auto args = make_args<PJRT_Event_OnReady_Args>();
  args.event = handle_;
  args.callback = notify;
  args.user_arg = listener.get();
  call<&PJRT_Api::PJRT_Event_OnReady>(api_, args, "to listen to an event");
  listener.release();  // notify frees it
}

void Event::surely_on_ready(ReadyCallback callback, void* user) const noexcept {
  try {
    return on_ready(callback, user);
  } catch (...) {
    // waited for below
  }
  std::optional<Failure> failure;
  try {
    await();
  } catch (const Error& e) {
    failure = Failure{e.code(), e.what()};
  } catch (...) {
    failure.emplace();
  }
  callback(user, failure ? &*failure : nullptr);
}

}  // namespace postern::internal::pjrt
