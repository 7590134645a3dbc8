// Arrays on devices, and the parts of Tensor that look at data.
//
// A value may be handed out before the run that makes it has ended. Who looks at its data waits for
// its buffer, and throws the failure of the run that makes it, or of an earlier one whose results
// that run was given. A value that was donated has no data from the moment a run takes it; a reader
// who came before keeps that run from reusing the memory.
#include "run/array.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/fork.h"
#include "core/log.h"
#include "host/run_state.h"
#include "host/spin.h"
#include "run/run_record.h"
#include "run/sharded.h"
#include "run/unwatched.h"
#include "trace/literal.h"

namespace postern::internal {

using detail::Access, detail::HostValue, detail::Value;

namespace run {

DeviceValue::DeviceValue(Type t, pjrt::Buffer b, int on, int ordinal, std::shared_ptr<RunRecord> r)
    : ComputedValue(Kind::device, std::move(t), std::move(r)),
      buffer(std::move(b)),
      lane(on),
      device(ordinal) {}

DeviceValue::~DeviceValue() {
  for (const View* v = views.load(); v;) delete std::exchange(v, v->next);
}

const Value* memory_of(const Value* value) {
  if (value->kind != Value::Kind::sharded) return value;
  return static_cast<const ShardedValue*>(value)->parts[0].get();
}

void mark_donated(const Value& value) {
  value.donated = true;
  if (value.kind != Value::Kind::sharded) return;
  for (const auto& part : static_cast<const ShardedValue&>(value).parts) part->donated = true;
}

void refuse_twice(std::span<const Value* const> given, std::size_t donated) {
  if (std::ranges::count(given, memory_of(given[donated]), memory_of) == 1) [[likely]]
    return;
  throw_type_error(fmt::format("a tensor of type {} is donated to a program that is given it twice",
                               to_string(given[donated]->type)));
}

// Of a reader and a run that takes the memory, each writes its mark before it looks for the
// other's: one of them sees the other.
Reading::Reading(const DeviceValue& value) : value_(value) {
  value.readers.fetch_add(1);
  if (!value.donated.load()) [[likely]]
    return;
  value.readers.fetch_sub(1);
  refuse_donated(value);
}

void Donation::take(const std::shared_ptr<const Value>& value, std::size_t parameter) {
  if (value->donated.exchange(true)) refuse_donated(*value);
  taken_.push_back(value);
  const DeviceValue* const array = as_device_value(value.get());
  if (array && array->readers.load() > 0) keep(parameter);
}

void Donation::keep(std::size_t parameter) {
  // The parts of one array come one after another, and are one parameter.
  const auto number = static_cast<std::int64_t>(parameter);
  if (kept_.empty() || kept_.back() != number) kept_.push_back(number);
}

Donation::~Donation() {
  for (const auto& value : taken_) value->donated = false;
}

void add_pending(const Value& value, Runs& runs) {
  if (value.kind != Value::Kind::device && value.kind != Value::Kind::sharded) return;
  const auto& computed = static_cast<const ComputedValue&>(value);
  if (computed.is_ready()) return;
  auto add = [&](const std::shared_ptr<RunRecord>& run) {
    if (run && run->outcome() != host::Outcome::done && std::ranges::find(runs, run) == runs.end())
      runs.push_back(run);
  };
  // The earlier ones first: their failure is the cause of that of the last.
  for (const std::shared_ptr<RunRecord>& run : computed.after) add(run);
  add(computed.run);
}

void rethrow_failure(const Runs& runs) {
  for (const std::shared_ptr<RunRecord>& run : runs) {
    const host::Outcome how = run->outcome();
    if (how != host::Outcome::running && how != host::Outcome::done) run->rethrow();
  }
}

void await(const DeviceValue& value) {
  if (!value.is_ready() || value.donated.load(std::memory_order_relaxed))
    await_by(value, [&] { await_buffer(value); });
}

void await_buffer(const DeviceValue& value) {
  const pjrt::Event ready = value.buffer.ready();
  static thread_local host::Spin spin;
  const bool there = spin.until([&] { return ready.is_ready(); });
  if (!there) refuse_forked();  // XLA's threads are not here
  try {
    ready.await();
  } catch (const Error&) {
    rethrow_naming(value.targets);
  }
}

void await_by(const ComputedValue& value, const std::function<void()>& wait) {
  refuse_donated(value);
  if (value.is_ready()) return;
  Runs runs;
  add_pending(value, runs);
  for (const std::shared_ptr<RunRecord>& run : runs) run->refuse_own_wait();
  std::vector<host::RunName> names;
  for (const std::shared_ptr<RunRecord>& run : runs) names.push_back(run->name());
  const host::Wait waits(names);  // throws where one of them waits for the caller
  const host::timeline::Span span(host::timeline::Kind::wait, "a result");
  try {
    wait();
  } catch (const Error&) {
    rethrow_failure(runs);  // which say more than XLA does
    throw;
  }
  rethrow_failure(runs);  // a run that leaves zeros ends well for XLA
  value.ready.store(true, std::memory_order_release);
}

namespace {

const DeviceValue& device_value(const Value& value) {
  return static_cast<const DeviceValue&>(value);
}

/// Keeps a value, and keeps any run from taking its memory.
struct Held {
  explicit Held(std::shared_ptr<const Value> v)
      : value(std::move(v)), reading(device_value(*value)) {}
  std::shared_ptr<const Value> value;
  Reading reading;
};

/// Makes a buffer of the lane over the value's memory, which the two share.
pjrt::Buffer view_on(const Lane& lane, const DeviceValue& value,
                     std::shared_ptr<const Held> keep = {}) {
  return lane.made_by().view_of_device(value.buffer.data(), value.type.dtype, value.type.dims,
                                       lane.handle, std::move(keep));
}

/// Extends the signs of packed numbers, which PJRT leaves off when it unpacks them to a byte each.
void extend_signs(DType dtype, void* data, std::size_t count) {
  if (!is_signed(dtype) || !is_packed(dtype)) return;
  const int unused = 8 - bit_width(dtype);
  for (std::int8_t& number : std::span(static_cast<std::int8_t*>(data), count)) {
    const auto sign_in_front = static_cast<std::int8_t>(number << unused);
    number = static_cast<std::int8_t>(sign_in_front >> unused);
  }
}

}  // namespace

void copy_out(const DeviceValue& value, void* to) {
  const Reading reading(value);
  await(value);
  copy_out(value.buffer, value.type, to);
}

void copy_out(const pjrt::Buffer& buffer, const Type& type, void* to) {
  const std::size_t bytes = type.byte_size();
  if (bytes == 0) return;
  if (is_packed(type.dtype) || !buffer.is_on_cpu()) {
    refuse_forked();
    buffer.to_host(to, bytes).await();
    return extend_signs(type.dtype, to, bytes);
  }
  std::memcpy(to, buffer.data(), bytes);
}

pjrt::Buffer send(const Type& t, const std::shared_ptr<const void>& bytes, const Lane& lane) {
  const bool in_place = t.byte_size() >= seen_in_place && !is_packed(t.dtype);
  return lane.made_by().buffer_from_host(bytes.get(), t.dtype, t.dims, lane.handle,
                                         in_place ? bytes : nullptr);
}

std::shared_ptr<DeviceValue> placed_on(const Type& type, pjrt::Buffer buffer, const Lane& lane) {
  return std::make_shared<DeviceValue>(type, std::move(buffer), lane.index, lane.device, nullptr);
}

std::shared_ptr<DeviceValue> sent_to(const Lane& lane, const Type& type,
                                     const std::shared_ptr<const void>& bytes) {
  return placed_on(type, send(type, bytes, lane), lane);
}

static pjrt::Buffer queued_copy(const DeviceValue& from, const Lane& lane) {
  const auto start = host::timeline::Clock::now();
  const Reading reading(from);  // until XLA knows of the copy
  pjrt::Buffer copy = from.buffer.copy_to(lane.handle);
  const pjrt::Event complete = copy.ready();
  if (host::timeline::on() || !complete.is_ready())
    follow(complete, host::timeline::Kind::transfer, to_string(from.type), lane.device, start);
  return copy;
}

pjrt::Buffer seen_on(std::shared_ptr<const Value> array, const Lane& lane) {
  const DeviceValue& from = device_value(*array);
  refuse_donated(from);
  const Lane& there = Runtime::get().lane(from.lane);
  const bool is_empty = from.type.size() == 0, shares_memory = there.memory == lane.memory;
  Runs calling;
  add_pending(from, calling);
  // A copy that waits for a run in its calls must not be queued: the run's functions may queue
  // behind it.
  if (!calling.empty()) await(from);
  const bool may_copy = there.has_client_of(lane) && from.lane != lane.index && !is_empty;
  const auto is_there = [&] { return from.is_ready() || from.buffer.ready().is_ready(); };
  if (may_copy && !(shares_memory && is_there())) return queued_copy(from, lane);
  await(from);
  if (shares_memory && !is_empty && !is_packed(from.type.dtype))
    return view_on(lane, from, std::make_shared<const Held>(std::move(array)));
  std::shared_ptr<const void> keep;
  const void* const bytes = host_view(Access::make(array), keep);
  return lane.made_by().buffer_from_host(bytes, from.type.dtype, from.type.dims, lane.handle);
}

namespace {

pjrt::Buffer* kept_by(std::shared_ptr<const void>& keep, pjrt::Buffer buffer) {
  auto owner = std::make_shared<pjrt::Buffer>(std::move(buffer));
  pjrt::Buffer* const kept = owner.get();
  keep = std::move(owner);
  return kept;
}

/// Finds or makes the array's buffer on the lane. The first lane that the array is sent to keeps
/// it there; any other lane's buffer, and a staged one, is for this run alone.
pjrt::Buffer* host_array_on(const HostValue& host, Lane& lane, std::shared_ptr<const void>& keep,
                            StagedOperands* staged) {
  const auto find_sent = [&]() -> pjrt::Buffer* {
    if (!host.was_sent.load(std::memory_order_acquire)) return nullptr;
    const DeviceValue& value = device_value(*host.on_device);
    if (value.lane == lane.index) return const_cast<pjrt::Buffer*>(&value.buffer);
    return nullptr;
  };
  if (pjrt::Buffer* const buffer = find_sent()) [[likely]]
    return buffer;
  if (!host.was_sent.load(std::memory_order_acquire)) {
    if (staged)
      if (pjrt::Buffer* const buffer = staged->stage(host, lane)) return buffer;
    std::scoped_lock lock(host.guard);
    if (!host.on_device) {  // else another thread has sent it since
      host.on_device = sent_to(lane, host.type, host.data);
      host.was_sent.store(true, std::memory_order_release);
    }
    if (pjrt::Buffer* const buffer = find_sent()) return buffer;
  }
  return kept_by(keep, send(host.type, host.data, lane));
}

/// Returns whether runs on the lane see the value through one buffer that stays: to make one takes
/// XLA longer than a short program.
bool is_viewed(const DeviceValue& value, const Lane& lane) {
  return lane.platform().on_host && value.is_ready() &&
         Runtime::get().lane(value.lane).memory == lane.memory && value.type.size() > 0 &&
         !is_packed(value.type.dtype);
}

/// Finds or makes the lane's view of a value that somebody reads: in a list without locks.
pjrt::Buffer* view_of(const DeviceValue& value, const Lane& lane) {
  using View = DeviceValue::View;
  View* const first = value.views.load(std::memory_order_acquire);
  for (View* v = first; v; v = v->next)
    if (v->lane == lane.index) return &v->buffer;
  auto made = std::make_unique<View>(
      View{.lane = lane.index, .buffer = view_on(lane, value), .next = first});
  // Another thread may have made one for the lane too: two of them do no harm.
  while (!value.views.compare_exchange_weak(made->next, made.get(), std::memory_order_acq_rel)) {
  }
  return &made.release()->buffer;
}

}  // namespace

pjrt::Buffer* on_lane(const Tensor& tensor, Lane& lane, std::shared_ptr<const void>& keep,
                      StagedOperands* staged) {
  const std::shared_ptr<const Value>& pointer = Access::pointer(tensor);
  check(pointer != nullptr, "an argument is an empty Tensor, one that was never given a value");
  refuse_donated(*pointer);
  if (const DeviceValue* const value = as_device_value(pointer.get())) {
    if (value->lane == lane.index) [[likely]]
      return const_cast<pjrt::Buffer*>(&value->buffer);
    if (staged && is_viewed(*value, lane)) {
      keep = std::make_shared<const Held>(pointer);
      return view_of(*value, lane);
    }
    return kept_by(keep, seen_on(pointer, lane));
  }
  if (pointer->kind == Value::Kind::sharded)
    return kept_by(keep, send(pointer->type, host_bytes(tensor, "an argument"), lane));
  if (pointer->kind != Value::Kind::host) [[unlikely]]
    throw_type_error(
        fmt::format("an argument of type {} is traced or abstract: a program needs values",
                    to_string(pointer->type)));
  return host_array_on(static_cast<const HostValue&>(*pointer), lane, keep, staged);
}

const void* host_view(const Tensor& tensor, std::shared_ptr<const void>& keep) {
  const std::shared_ptr<const Value>& pointer = Access::pointer(tensor);
  const DeviceValue* const value = as_device_value(pointer.get());
  if (value && !is_packed(value->type.dtype) && value->type.size() > 0 &&
      value->buffer.is_on_cpu()) {
    if (!keep) keep = std::make_shared<const Held>(pointer);
    await(*value);
    return value->buffer.data();
  }
  if (!keep) keep = host_bytes(tensor, "a view");
  return keep.get();
}

std::shared_ptr<const void> host_bytes(const Tensor& tensor, const char* what) {
  const std::shared_ptr<const Value>& pointer = Access::pointer(tensor);
  check(pointer != nullptr, "{}: the Tensor is empty, it was never given a value", what);
  refuse_donated(*pointer);
  if (pointer->kind == Value::Kind::host) return static_cast<const HostValue&>(*pointer).data;
  if (const detail::TracedValue* t = Access::traced(tensor))
    throw_type_error(
        fmt::format("{}: the tensor of type {}{} is traced ({}): it has a value only when the "
                    "program runs",
                    what, to_string(t->type), origin_of(*t), t->mark->what));
  check(pointer->kind != Value::Kind::abstract,
        "{}: the tensor of type {} is abstract: it has a type but no value", what,
        to_string(pointer->type));
  std::shared_ptr<void> bytes = detail::aligned_bytes(pointer->type.byte_size());
  if (pointer->kind == Value::Kind::sharded)
    gather(static_cast<const ShardedValue&>(*pointer), bytes.get());
  else
    copy_out(device_value(*pointer), bytes.get());
  return bytes;
}

}  // namespace run

}  // namespace postern::internal

namespace postern {
using namespace internal;

/// Checks what the user gives: the type too, which may have been written down field by field.
static void check_given(const char* what, const Type& type, const void* data) {
  check_type(type);
  if (!data && type.byte_size() != 0)
    throw_type_error(fmt::format("{}: the data of {} is null", what, to_string(type)));
}

Tensor::Tensor(const Type& type, const void* data, Place place) {
  PlaceScope at(place);
  check_given("Tensor", type, data);
  std::shared_ptr<void> bytes = detail::aligned_bytes(type.byte_size());
  if (type.byte_size() > 0) std::memcpy(bytes.get(), data, type.byte_size());
  if (type.dtype == DType::pred) detail::make_booleans(bytes.get(), type.byte_size());
  value_ = std::make_shared<HostValue>(type, std::move(bytes));
}

Tensor Tensor::borrow(const Type& type, const void* data, std::function<void()> release,
                      Place place) {
  PlaceScope at(place);
  check_given("Tensor::borrow", type, data);
  auto let_go = [r = std::move(release)](const void*) {
    try {
      if (r) r();
    } catch (...) {  // on whatever thread was the last to need it: nobody could catch this
      log(LogLevel::warning, "Tensor::borrow: release threw, which it must not: {}",
          host::describe(std::current_exception()));
    }
  };
  std::shared_ptr<const void> bytes(data, std::move(let_go));  // from here on it is let go
  if (type.dtype == DType::pred && !detail::are_booleans(data, type.byte_size()))
    return Tensor(type, data);
  return Tensor(std::make_shared<HostValue>(type, std::move(bytes)));
}

const Type& Tensor::type(Place place) const {
  if (!value_) [[unlikely]] {
    PlaceScope at(place);
    throw_type_error("type: the Tensor is empty, it was never given a value");
  }
  return value_->type;
}

bool Tensor::is_traced() const {
  return value_ && (value_->kind == Value::Kind::traced || value_->kind == Value::Kind::abstract);
}

int Tensor::device() const {
  if (value_ && value_->kind == Value::Kind::sharded)
    return static_cast<const run::ShardedValue&>(*value_).sharding.mesh().devices().front();
  if (const auto* array = run::as_device_value(value_.get())) return array->device;
  return 0;
}

void Tensor::read(void* to, Place place) const {
  PlaceScope at(place);
  if (const auto* array = run::as_device_value(value_.get())) return run::copy_out(*array, to);
  const std::shared_ptr<const void> bytes = run::host_bytes(*this, "read");
  if (const std::size_t size = value_->type.byte_size()) std::memcpy(to, bytes.get(), size);
}

static void check_dtype(const char* what, const Value* value, DType dtype) {
  check(value != nullptr, "{}: the Tensor is empty, it was never given a value", what);
  check(value->type.dtype == dtype, "{}: the tensor is {}, asked for as {}", what,
        to_string(value->type), to_string(dtype));
}

void Tensor::read_item(DType dtype, void* to, Place place) const {
  PlaceScope at(place);
  check_dtype("item", value_.get(), dtype);
  check(value_->type.size() == 1, "item: the tensor must have one element, it is {}",
        to_string(value_->type));
  read(to, place);
}

std::size_t Tensor::read_size(DType dtype, Place place) const {
  PlaceScope at(place);
  check_dtype("to_vector", value_.get(), dtype);
  return static_cast<std::size_t>(value_->type.size());
}

const Tensor& Tensor::block_until_ready(Place place) const {
  PlaceScope at(place);
  if (const auto* array = run::as_device_value(value_.get()))
    run::await(*array);
  else if (value_ && value_->kind == Value::Kind::sharded)
    run::await(static_cast<const run::ShardedValue&>(*value_));
  else
    static_cast<void>(run::host_bytes(*this, "block_until_ready"));
  return *this;
}

void detail::throw_no_memory(std::size_t elements, std::size_t width) {
  throw Error(ErrorCode::resource_exhausted,
              fmt::format("{} elements of {} bytes were asked for, there is no memory for them",
                          elements, width));
}

void detail::wrong_lists(std::size_t first, std::size_t other, Place place) {
  PlaceScope at(place);
  throw_type_error(
      fmt::format("tensor: lists in a list must have one length, got {} and {}", first, other));
}

Tensor make_tensor(const Type& type, const void* data, std::size_t elements, Place place) {
  PlaceScope at(place);
  check(static_cast<std::int64_t>(elements) == type.size(),
        "tensor: {} has {} elements, {} values were given", to_string(type), type.size(), elements);
  return Tensor(type, data);
}

Tensor abstract(const Type& type, Place place) {
  PlaceScope at(place);
  struct AbstractValue final : Value {
    explicit AbstractValue(Type t) : Value(Kind::abstract, std::move(t)) {}
  };
  return Access::make(std::make_shared<AbstractValue>(make_type(type.dtype, type.dims)));
}

Tensor Operand::weak(const Type& type, const void* data) {
  std::shared_ptr<void> bytes = detail::aligned_bytes(type.byte_size());
  std::memcpy(bytes.get(), data, type.byte_size());
  Type t = type;
  t.weak = true;
  return Access::make(std::make_shared<HostValue>(std::move(t), std::move(bytes)));
}

}  // namespace postern
