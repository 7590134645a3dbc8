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

// PJRT cannot wait with a limit, nor take a callback back: this lives on until the callback has
// come.
struct Waiter {
  Mutex mutex;
  Condition changed;
  bool ready = false;
};

}  // namespace

bool Event::is_ready() const {
  return ask<&PJRT_Api::PJRT_Event_IsReady>(api(), handle(), "to look at an event").is_ready;
}

void Event::await() const { ask<&PJRT_Api::PJRT_Event_Await>(api(), handle(), "while running"); }

bool Event::wait_for(std::chrono::nanoseconds limit) const {
  if (is_ready()) return true;
  const auto waiter = std::make_shared<Waiter>();
  auto share = std::make_unique<std::shared_ptr<Waiter>>(waiter);  // for the callback
  on_ready(
      [](void* user, const Failure*) noexcept {
        std::unique_ptr<std::shared_ptr<Waiter>> held(static_cast<std::shared_ptr<Waiter>*>(user));
        std::lock_guard lock((*held)->mutex);
        (*held)->ready = true;
        (*held)->changed.notify_all();
      },
      share.get());
  share.release();  // the callback frees it
  std::unique_lock lock(waiter->mutex);
  const std::chrono::nanoseconds year = std::chrono::hours(24 * 365);  // now() + more may overflow
  return waiter->changed.wait_for(lock, std::min(limit, year), [&] { return waiter->ready; });
}

std::optional<Failure> Event::error() const {
  if (!is_ready()) return std::nullopt;
  auto args = make_args<PJRT_Event_Error_Args>();
  args.event = handle();
  PJRT_Error* error = entry<&PJRT_Api::PJRT_Event_Error>(api(), "to read an event's error")(&args);
  if (!error) return std::nullopt;
  return take_failure(api(), error);
}

void Event::on_ready(ReadyCallback callback, void* user) const {
  auto listener = std::make_unique<Listener>(Listener{api(), callback, user});
  auto args = make_args<PJRT_Event_OnReady_Args>();
  args.event = handle();
  args.callback = notify;
  args.user_arg = listener.get();
  call<&PJRT_Api::PJRT_Event_OnReady>(api(), args, "to listen to an event");
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
