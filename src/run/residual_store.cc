// Residual stores of loops that are evaluated step by step, and calls that were started outside of
// programs. No run owns them but the tensors of their handles do: there a derivative or a Pending
// is the user's to keep.
#include "run/residual_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>

#include "core/check.h"
#include "core/lists.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/value.h"
#include "host/pending.h"
#include "host/residual_store.h"

namespace postern::internal::run {

namespace {

using detail::Access, detail::DropsOwner;

class Owned;

/// What is there outside of runs, for who has only a handle: its dtype and its bits.
struct Loose {
  Mutex guard;
  std::map<std::pair<DType, std::uint64_t>, std::weak_ptr<Owned>> by_handle;
  host::ResidualFiles files;
};
Loose& loose() { return never_destroyed<Loose>(); }

/// What tensors own of which the elements are its handles; zero is nobody's.
class Owned {
 public:
  Owned(DType dtype, std::vector<std::uint64_t> handles)
      : dtype_(dtype), handles_(std::move(handles)) {}
  Owned(const Owned&) = delete;
  virtual ~Owned() {
    const std::scoped_lock lock(loose().guard);
    for (const std::uint64_t handle : handles_) loose().by_handle.erase({dtype_, handle});
  }
  static void list(const std::shared_ptr<Owned>& owned) {
    const std::scoped_lock lock(loose().guard);
    for (const std::uint64_t handle : owned->handles_)
      if (handle != 0) loose().by_handle.emplace(std::pair(owned->dtype_, handle), owned);
  }
  static std::shared_ptr<Owned> find(DType dtype, std::uint64_t handle) {
    const std::scoped_lock lock(loose().guard);
    const auto found = loose().by_handle.find({dtype, handle});
    return found == loose().by_handle.end() ? nullptr : found->second.lock();
  }

 protected:
  const DType dtype_;
  const std::vector<std::uint64_t> handles_;
};
using OwnedPtr = std::shared_ptr<Owned>;

double next_handle() {
  static std::atomic<std::uint64_t> handles{0};
  return host::loose_handle(handles.fetch_add(1));
}

struct LooseStore : Owned {
  LooseStore(double handle, std::size_t bytes, std::shared_ptr<host::ResidualBudget> budget)
      : Owned(DType::f64, {std::bit_cast<std::uint64_t>(handle)}),
        store(bytes, std::move(budget)) {}
  host::ResidualStore store;
  std::vector<std::shared_ptr<const void>> inner;  // of handles that are in it
};
using LooseStorePtr = std::shared_ptr<LooseStore>;

/// The calls of one start. When they go, nobody can wait for them any more.
struct LooseCalls : Owned {
  explicit LooseCalls(std::vector<std::uint64_t> handles) : Owned(DType::u64, std::move(handles)) {}
  ~LooseCalls() override { host::calls_outside()->forget(handles_); }
};

/// The memory of a tensor of handles, which goes with what it owns.
struct Owner {
  std::shared_ptr<void> bytes;
  std::vector<OwnedPtr> owned = {};
};

Tensor owning(const Type& type, std::shared_ptr<Owner> owner) {
  const void* const bytes = owner->bytes.get();
  const std::shared_ptr<const void> data(bytes, DropsOwner{std::move(owner)});
  return Access::make(std::make_shared<detail::HostValue>(type, data));
}

/// Makes handles in the shape of `like`, each of a new store.
Tensor new_handles(const Tensor& like, std::size_t bytes,
                   const std::shared_ptr<host::ResidualBudget>& budget) {
  auto owner = std::make_shared<Owner>(Owner{detail::aligned_bytes(like.type().byte_size())});
  auto* const handles = static_cast<double*>(owner->bytes.get());
  for (std::int64_t i = 0; i < like.size(); ++i) {
    handles[i] = next_handle();
    Owned::list(owner->owned.emplace_back(std::make_shared<LooseStore>(handles[i], bytes, budget)));
  }
  return owning(like.type(), std::move(owner));
}

LooseStorePtr store_of(double handle) {
  OwnedPtr store = Owned::find(DType::f64, std::bit_cast<std::uint64_t>(handle));
  if (!store)
    throw Error(
        ErrorCode::failed_precondition,
        "while_loop: its residuals are not there: they belong to a run that has ended, or to a "
        "loop whose pullbacks are differentiated as a sum; put all of the derivative into "
        "one jit");
  return std::static_pointer_cast<LooseStore>(std::move(store));
}

std::vector<unsigned char> bytes_of(const Tensor& t) {
  std::vector<unsigned char> out(t.type().byte_size());
  t.read(out.data());
  return out;
}
template <class Handle>
std::vector<Handle> values_of(const Tensor& handles) {
  std::vector<Handle> out(size_of(handles.size()));
  handles.read(out.data());
  return out;
}

}  // namespace

/// Returns the bytes behind one of `count` handles that have so many together.
static std::size_t bytes_of_each(std::size_t bytes, std::size_t count) {
  if (count == 0) return 0;
  return bytes / count;
}

std::shared_ptr<const void> owner_of(const Tensor& handle) {
  const detail::HostValue* const host = Access::host(handle);
  if (!host) return nullptr;
  const DropsOwner* const memory = std::get_deleter<DropsOwner>(host->data);
  if (!memory) return nullptr;
  return memory->owner;
}

/// Makes the tensor own those in place of what it owned.
static void own(Tensor& handles, std::vector<OwnedPtr> owned) {
  auto owner = std::make_shared<Owner>(
      Owner{detail::aligned_bytes(handles.type().byte_size()), std::move(owned)});
  handles.read(owner->bytes.get());
  handles = owning(handles.type(), std::move(owner));
}

void own_calls(Tensor& handles) {
  std::vector<OwnedPtr> calls{std::make_shared<LooseCalls>(values_of<std::uint64_t>(handles))};
  Owned::list(calls[0]);
  own(handles, std::move(calls));
}

void keep_owned(Tensor& handles) {
  if (handles.dtype() != DType::f64 && handles.dtype() != DType::u64) return;
  std::vector<OwnedPtr> owned;
  for (const std::uint64_t handle : values_of<std::uint64_t>(handles))
    if (OwnedPtr one = Owned::find(handles.dtype(), handle)) owned.push_back(std::move(one));
  if (!owned.empty()) own(handles, std::move(owned));
}

void keep_owned(std::span<const Tensor* const> operands, std::span<Tensor> results) {
  if (std::ranges::any_of(operands, [](const Tensor* t) { return owner_of(*t) != nullptr; }))
    for (Tensor& result : results) keep_owned(result);
}

/// Has errors of stores name the loop, as they do where a program calls for them.
template <class F>
static auto named_as_loop(const F& f) {
  try {
    return f();
  } catch (const CallbackError&) {
    throw;
  } catch (const Error& e) {
    const Place place = PlaceScope::current();
    throw CallbackError(e.code(),
                        fmt::format("call 'while_loop' at {}: {}", to_string(place), e.what()),
                        {"while_loop", place}, 0, std::current_exception());
  }
}

/// Puts what step k leaves into the stores. Handles that own none yet get new ones.
static void push(std::int64_t k, Tensors& handles, TensorSpan leaves,
                 const ResidualOptions& options) {
  std::shared_ptr<host::ResidualBudget> budget;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const std::size_t count = size_of(handles[i].size());
    const std::vector<unsigned char> bytes = bytes_of(leaves[i]);
    const std::size_t one = bytes_of_each(bytes.size(), count);
    if (!owner_of(handles[i])) {
      if (!budget) budget = std::make_shared<host::ResidualBudget>(options, loose().files);
      handles[i] = new_handles(handles[i], one, budget);
    }
    const std::vector<double> numbers = values_of<double>(handles[i]);
    for (std::size_t j = 0; j < count; ++j) {  // the elements of a batch, each with its store
      const LooseStorePtr store = store_of(numbers[j]);
      store->store.write(k, 1, bytes.data() + j * one);
      if (auto inner = owner_of(leaves[i])) store->inner.push_back(std::move(inner));
    }
  }
}

static Tensors read(std::int64_t k, TensorSpan handles, const Types& steps) {
  Tensors out;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    std::shared_ptr<void> bytes = detail::aligned_bytes(steps[i].byte_size());
    const std::vector<double> numbers = values_of<double>(handles[i]);
    const std::size_t one = bytes_of_each(steps[i].byte_size(), numbers.size());
    for (std::size_t j = 0; j < numbers.size(); ++j) {  // the elements of a batch
      auto* const to = static_cast<unsigned char*>(bytes.get()) + j * one;
      if (numbers[j] == 0)  // the store that holds only zeros
        std::memset(to, 0, one);
      else
        store_of(numbers[j])->store.read(k, 1, to);
    }
    out.push_back(Access::make(std::make_shared<detail::HostValue>(steps[i], std::move(bytes))));
    keep_owned(out.back());
  }
  return out;
}

void write_residuals(std::int64_t k, Tensors& handles, TensorSpan leaves,
                     const ResidualOptions& options) {
  named_as_loop([&] { push(k, handles, leaves, options); });
}

Tensors read_residuals(std::int64_t k, TensorSpan handles, const Types& steps) {
  return named_as_loop([&] { return read(k, handles, steps); });
}

}  // namespace postern::internal::run
