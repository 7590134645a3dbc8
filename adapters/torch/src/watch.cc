#include "watch.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace postern::torch {

namespace {

thread_local Watch* current = nullptr;

std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& function) {
  const bool script = function.scope() == at::RecordScope::TORCHSCRIPT_FUNCTION;
  if (current && (script || !at::GradMode::is_enabled())) current->see();
  return nullptr;
}

}  // namespace

Watch::Watch() : around_(std::exchange(current, this)) {
  if (around_) return;  // it has a callback
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(look).scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::TORCHSCRIPT_FUNCTION}));
}

Watch::~Watch() {
  if (callback_) at::removeCallback(*callback_);
  if (around_ && seen_) around_->see();
  current = around_;
}

Unwatched::Unwatched() : watch_(std::exchange(current, nullptr)) {}
Unwatched::~Unwatched() { current = watch_; }

}  // namespace postern::torch
