// From another XLA's call frame to a run of one site.
#include "guest/guest.h"

#include <postern/detail/small_vector.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/fork.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "guest/call_site.h"
#include "guest/meetings.h"
#include "host/enter.h"
#include "host/executor.h"
#include "host/float_state.h"
#include "host/timeline.h"

namespace postern::internal::guest {

namespace {

using host::FloatState;
using host::HostSite;

/// Nobody knows which thread asked for a run of another XLA's.
const FloatState of_process = FloatState::now();  // when the library is loaded

alignas(64) std::byte nothing[64];  // where empty arrays point

std::string_view text_of(const XLA_FFI_ByteSpan& span) { return {span.ptr, span.len}; }

template <class T>
std::vector<T> list_of(const XLA_FFI_Array& array) {
  const T* const begin = static_cast<const T*>(array.data);
  return {begin, begin + array.size};
}

/// Returns one of a type that CallAttributes takes; nothing for others.
std::optional<Attribute> attribute_at(const XLA_FFI_Attrs& attrs, std::int64_t i) {
  const void* const value = attrs.attrs[i];
  if (attrs.types[i] == XLA_FFI_AttrType_STRING)
    return std::string(text_of(*static_cast<const XLA_FFI_ByteSpan*>(value)));
  if (attrs.types[i] == XLA_FFI_AttrType_SCALAR) {
    const auto& scalar = *static_cast<const XLA_FFI_Scalar*>(value);
    switch (scalar.dtype) {
      case XLA_FFI_DataType_PRED: return *static_cast<const bool*>(scalar.value);
      case XLA_FFI_DataType_S64: return *static_cast<const std::int64_t*>(scalar.value);
      case XLA_FFI_DataType_F64: return *static_cast<const double*>(scalar.value);
      default: return std::nullopt;
    }
  }
  if (attrs.types[i] == XLA_FFI_AttrType_ARRAY) {
    const auto& array = *static_cast<const XLA_FFI_Array*>(value);
    if (array.dtype == XLA_FFI_DataType_S64) return list_of<std::int64_t>(array);
    if (array.dtype == XLA_FFI_DataType_F64) return list_of<double>(array);
  }
  return std::nullopt;
}

CallAttributes attributes_of(const XLA_FFI_CallFrame* frame) {
  CallAttributes attributes;
  for (std::int64_t i = 0; i < frame->attrs.size; ++i) {
    const std::string_view name = text_of(*frame->attrs.names[i]);
    const std::optional<Attribute> value = attribute_at(frame->attrs, i);
    check(value.has_value(),
          "a custom call of Postern has the attribute '{}', of a type that it "
          "does not take",
          name);
    attributes.set(name, *value);
  }
  attributes.require();
  return attributes;
}

bool is_token(const XLA_FFI_Buffer* buffer) { return buffer->dtype == XLA_FFI_DataType_TOKEN; }

std::vector<Type> types_of(std::span<XLA_FFI_Buffer* const> buffers) {
  std::vector<Type> types;
  for (const XLA_FFI_Buffer* b : buffers) {
    if (is_token(b)) continue;
    DType dtype{};
    check(pjrt::dtype_of(b, dtype),
          "a custom call of Postern has a buffer of XLA's type {}, for which there is no dtype",
          static_cast<int>(b->dtype));
    const auto dims = pjrt::dims_of(b);
    types.push_back(make_type(dtype, Dims(dims.begin(), dims.end())));
  }
  return types;
}

/// Returns how many tokens there are, if all are in front.
std::optional<std::size_t> leading_tokens(std::span<XLA_FFI_Buffer* const> buffers) {
  const auto first = std::ranges::find_if_not(buffers, is_token);
  if (std::any_of(first, buffers.end(), is_token)) return std::nullopt;
  return static_cast<std::size_t>(first - buffers.begin());
}

/// Returns the position that the last operand of a call on a mesh says; else -1: see spec_of().
std::int64_t position_of(const XLA_FFI_CallFrame* frame, const CallSite& place, const Home& home) {
  const auto operands = pjrt::operands(frame);
  if (!place.attributes().on_mesh() || operands.empty()) return -1;
  const XLA_FFI_Buffer& last = *operands.back();
  if (last.dtype != XLA_FFI_DataType_U32 || last.rank != 0) return -1;
  std::uint32_t position = 0;
  home.to_host(&position, last.data, sizeof position, frame);
  return position;
}

std::unique_ptr<GuestRun> make_run(const XLA_FFI_CallFrame* frame, CallSite& place,
                                   std::int64_t position, const Home& home) {
  const auto operands = pjrt::operands(frame), results = pjrt::results(frame);
  auto run = place.make(
      {.operands = types_of(operands), .results = types_of(results), .position = position}, home);
  const auto in = leading_tokens(operands), out = leading_tokens(results);
  run->plain = in && out;
  run->tokens_in = in.value_or(0);
  run->tokens_out = out.value_or(0);
  return run;
}

[[gnu::always_inline]] inline void point_at(std::span<XLA_FFI_Buffer* const> buffers, void** data) {
  for (const XLA_FFI_Buffer* b : buffers) *data++ = b->data ? b->data : nothing;
}

/// Enters what enter_fast() does not: stages, tokens anywhere, a mesh, buffers of a device.
[[gnu::noinline]] bool enter_specially(XLA_FFI_CallFrame* frame, GuestRun& run, int device,
                                       const Home& home) {
  const HostSite& site = *run.site;
  run.belong_to(static_cast<std::uint64_t>(pjrt::run_id(frame)));
  if (site.spec->tap.async && run.tap_source().end.load(std::memory_order_relaxed)) {
    run.request(host::Outcome::stopped);  // by an earlier invocation's listener
    return false;
  }
  detail::SmallVector<void*, HostSite::few> data(site.buffers);
  std::size_t count = 0;
  auto operands = pjrt::operands(frame);
  if (run.on_mesh()) operands = operands.first(operands.size() - 1);  // the last is the position
  for (const auto list : {operands, pjrt::results(frame)})
    for (const XLA_FFI_Buffer* b : list)
      if (!is_token(b)) data[count++] = b->data ? b->data : nothing;
  if (home.enter) return home.enter(run, site, data.data(), device, frame);
  const host::Helpers helpers(frame, [](void* from, XLA_FFI_Task* task, void* with) {
    return pjrt::schedule(static_cast<const XLA_FFI_CallFrame*>(from), task, with);
  });
  return host::enter_site({.run = run, .site = site, .data = data.data(), .device = device});
}

/// Enters the function itself, on this thread: of a run whose buffers are `plain`.
bool enter_fast(const XLA_FFI_CallFrame* frame, GuestRun& run, int device) {
  void* data[HostSite::few];
  point_at(pjrt::operands(frame).subspan(run.tokens_in, run.site->operands), data);
  point_at(pjrt::results(frame).subspan(run.tokens_out), data + run.site->operands);
  run.enters(*run.site, device);
  return host::enter_here(run, *run.site, data, device, nullptr);
}

/// Returns how XLA computes on this thread, read once an execution: to read it takes 15 ns.
const FloatState& floats_of(std::int64_t execution) {
  thread_local std::int64_t last = 0;
  thread_local FloatState floats;
  if (execution == 0 || execution != std::exchange(last, execution)) floats = FloatState::now();
  return floats;
}

/// Makes a call in a run of its own. One that fails does not come back: it has its failure.
void run_call(XLA_FFI_CallFrame* frame, CallSite& place, int device, const Home& home) {
  const host::FloatScope as_process(of_process, floats_of(pjrt::run_id(frame)));
  const std::int64_t position = position_of(frame, place, home);
  std::unique_ptr<GuestRun> run = place.take(device);
  if (!run || run->position != position || !place.renew(*run)) [[unlikely]]
    run = make_run(frame, place, position, home);
  const bool fast_path = run->site->fast_path && run->plain && !home.enter && !host::timeline::on();
  const bool ok =
      fast_path ? enter_fast(frame, *run, device) : enter_specially(frame, *run, device, home);
  if (!ok) [[unlikely]]
    run->rethrow();
  place.give_back(std::move(run), device);
}

constinit thread_local std::uint64_t made_here = 0;

void serve(XLA_FFI_CallFrame* frame, CallSite& place, const Home& home) {
  ++made_here;
  const int device = std::max(pjrt::device_ordinal(frame), 0);
  const CallAttributes& asked = place.attributes();
  if (asked.meets > 1) [[unlikely]]
    meet(&place, frame, device, asked.meets, home,
         [&] { run_call(frame, place, static_cast<int>(asked.leader), home); });
  else
    run_call(frame, place, device, home);
}

struct Failure {
  std::uint64_t number;
  std::exception_ptr error;
  std::int64_t run;
  bool was_asked_for;  // this one, or another of the run
};

struct Failures {
  Mutex guard;
  std::random_device numbers;
  std::deque<Failure> last;  // the newest at the end

  /// Makes what no text that a user wrote has in it by chance, and 19 digits can write.
  std::uint64_t make_number() { return (std::uint64_t{numbers()} << 31) | (numbers() >> 1); }
};
constexpr std::size_t failures_kept = 256, causes_kept = 16;
Failures& failures() { return never_destroyed<Failures>(); }

/// Returns the same error, which nothing caused.
std::exception_ptr without_cause(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return std::make_exception_ptr(Error(e.code(), e.what()));
  } catch (...) {
    return error;
  }
}

XLA_FFI_Error* error_of(const XLA_FFI_CallFrame* frame, const std::string& what,
                        std::uint64_t number) {
  return pjrt::make_error(frame, ErrorCode::internal,
                          fmt::format("{} [postern failure {}]", what, number).c_str());
}

/// Keeps a failure, and of the last ones their causes. Returns XLA's error, which has its number.
XLA_FFI_Error* keep_failure(const XLA_FFI_CallFrame* frame, std::exception_ptr error) {
  const std::int64_t run = pjrt::run_id(frame);
  note_failed(run);
  const std::string what = host::describe(error);
  std::exception_ptr gone;  // after the lock: its end may be anything
  std::unique_lock lock(failures().guard);
  auto& last = failures().last;
  const auto same = std::ranges::find(last, error, &Failure::error);
  if (same != last.end()) return error_of(frame, what, same->number);  // of a call made for all
  const std::uint64_t number = failures().make_number();
  const bool was_asked_for =
      std::ranges::any_of(last, [&](auto& f) { return f.run == run && f.was_asked_for; });
  last.push_back({number, std::move(error), run, was_asked_for});
  if (last.size() > failures_kept) last.pop_front();
  if (last.size() > causes_kept) {  // one more has become too old for its cause
    std::exception_ptr& old = last[last.size() - 1 - causes_kept].error;
    gone = std::exchange(old, without_cause(old));
  }
  lock.unlock();
  return error_of(frame, what, number);
}

/// Calls body(). What it throws becomes XLA's error.
template <class Body>
XLA_FFI_Error* guarded(const XLA_FFI_CallFrame* frame, Body body) {
  try {
    body();
    return nullptr;
  } catch (...) {
    try {
      return keep_failure(frame, std::current_exception());
    } catch (...) {
      return pjrt::make_error(frame, ErrorCode::resource_exhausted,
                              "postern: no memory for the text of a failure");
    }
  }
}

/// Returns, for an XLA that keeps no state, one place for the same attributes and types of buffers.
std::shared_ptr<CallSite> place_of(const XLA_FFI_CallFrame* frame, const Home& home) {
  constexpr std::size_t most = 1024;  // then all are let go of
  using Places = std::map<std::string, std::shared_ptr<CallSite>>;
  static Mutex guard;
  static auto* const made = new Places;
  CallAttributes attributes = attributes_of(frame);
  const std::string key = fmt::format("{}\n{}\n{}\n{}", home.platform, attributes.key(),
                                      to_string(types_of(pjrt::operands(frame))),
                                      to_string(types_of(pjrt::results(frame))));
  Places gone;  // after the lock: functions may go with them, and their ends may be anything
  const std::scoped_lock lock(guard);
  if (made->size() >= most && !made->contains(key)) gone.merge(*made);
  std::shared_ptr<CallSite>& place = (*made)[key];
  if (!place) place = std::make_shared<CallSite>(std::move(attributes));
  return place;
}

void delete_place(void* place) { delete static_cast<CallSite*>(place); }

}  // namespace

XLA_FFI_Error* instantiate(XLA_FFI_CallFrame* frame, const Home& home) {
  if (frame->extension_start && pjrt::answer_metadata(frame, 0, home.state)) return nullptr;
  return guarded(frame, [&] {
    refuse_forked();
    watch_forks(true);
    auto place = std::make_unique<CallSite>(attributes_of(frame));
    if (pjrt::set_state(frame, home.state, place.get(), delete_place))
      static_cast<void>(place.release());
  });
}

XLA_FFI_Error* execute(XLA_FFI_CallFrame* frame, const Home& home) {
  if (frame->extension_start && pjrt::answer_metadata(frame, 0, home.state)) [[unlikely]]
    return nullptr;
  return guarded(frame, [&] {
    refuse_forked();
    void* state = nullptr;
    if (home.state.type_id != 0) [[likely]]
      state = pjrt::state_of(frame, home.state);
    if (state) [[likely]]
      serve(frame, *static_cast<CallSite*>(state), home);
    else
      serve(frame, *place_of(frame, home), home);
  });
}

void* state_type_info() {
  struct TypeInfo {
    std::size_t struct_size;
    XLA_FFI_Extension_Base* extension_start;
    void (*deleter)(void*);
  };
  static TypeInfo info{sizeof info, nullptr, delete_place};
  return &info;
}

Waiting waiting() {
  for (const host::Nesting* n = host::nesting(); n && !n->delivery; n = n->outer) {
    host::RunName own;
    std::span<const host::RunName> runs(&own, 1);
    if (n->run)
      own = n->run->name();
    else  // without a run it is a Beginning, inside of others
      runs = static_cast<const host::Beginning*>(n)->inside;
    for (const host::RunName& name : runs)
      if (const Waiting found = GuestRun::waiting(name, n->device); found.home) return found;
  }
  return {};
}

std::uint64_t calls_made() { return made_here; }

std::exception_ptr failure(std::uint64_t number) {
  const std::scoped_lock lock(failures().guard);
  auto& last = failures().last;
  const auto found = std::ranges::find_if(
      last, [&](auto& f) { return number == 0 ? !f.was_asked_for : f.number == number; });
  if (found == last.end()) return nullptr;
  for (Failure& f : last) f.was_asked_for |= f.run == found->run;
  return found->error;
}

}  // namespace postern::internal::guest
