// Watches torch's record of operations for one with gradients off, and for compiled scripts.
#include "watch.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace postern::torch {

namespace {

thread_local Watch* watching = nullptr;

std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& function) {
  const bool script = function.scope() == at::RecordScope::TORCHSCRIPT_FUNCTION;
  if (watching && (script || !at::GradMode::is_enabled())) watching->see();
  return nullptr;
}

}  // namespace

Watch::Watch() : around_(std::exchange(watching, this)) {
  if (around_) return;  // it has a callback
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(look).scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::TORCHSCRIPT_FUNCTION}));
}

Watch::~Watch() {
  if (callback_) at::removeCallback(*callback_);
  if (around_ && seen_) around_->see();
  watching = around_;
}

Unwatched::Unwatched() : watch_(std::exchange(watching, nullptr)) {}
Unwatched::~Unwatched() { watching = watch_; }

}  // namespace postern::torch
