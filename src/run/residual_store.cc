// Residual stores of loops that are evaluated step by step. No run owns them but the tensors of
// their handles do: outside of every program a derivative is the user's to keep.
#include "run/residual_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "core/check.h"
#include "core/lists.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/value.h"
#include "host/residual_store.h"

namespace postern::internal::run {

namespace {

using detail::Access;

struct LooseStore;

/// Stores by handle, for who has only the number.
struct Loose {
  Mutex guard;
  std::map<double, std::weak_ptr<LooseStore>> by_handle;
  host::ResidualFiles files;
};
Loose& loose() { return never_destroyed<Loose>(); }

double next_handle() {
  static std::atomic<std::uint64_t> handles{0};
  return host::loose_handle(handles.fetch_add(1));
}

struct LooseStore {
  LooseStore(std::size_t bytes, std::shared_ptr<host::ResidualBudget> budget)
      : store(bytes, std::move(budget)) {}
  LooseStore(const LooseStore&) = delete;
  ~LooseStore() {
    const std::scoped_lock lock(loose().guard);
    loose().by_handle.erase(handle);
  }
  const double handle = next_handle();
  host::ResidualStore store;
  std::vector<std::shared_ptr<const void>> inner;  // of handles that are in it
};
using LooseStorePtr = std::shared_ptr<LooseStore>;

/// The memory of a tensor of handles, which goes with its stores.
struct Owner {
  std::shared_ptr<void> bytes;
  std::vector<LooseStorePtr> stores = {};
};

/// Marks the pointers that Owners are behind.
struct DropsOwner {
  std::shared_ptr<Owner> owner;
  void operator()(const void*) const {}
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
    const auto& store = owner->stores.emplace_back(std::make_shared<LooseStore>(bytes, budget));
    handles[i] = store->handle;
    const std::scoped_lock lock(loose().guard);
    loose().by_handle.emplace(handles[i], store);
  }
  return owning(like.type(), std::move(owner));
}

LooseStorePtr find_store(double handle) {
  const std::scoped_lock lock(loose().guard);
  const auto found = loose().by_handle.find(handle);
  return found == loose().by_handle.end() ? nullptr : found->second.lock();
}

LooseStorePtr store_of(double handle) {
  LooseStorePtr store = find_store(handle);
  if (!store)
    throw Error(
        ErrorCode::failed_precondition,
        "while_loop: its residuals are not there: they belong to a run that has ended, or to a "
        "loop whose pullbacks are differentiated as a sum; put all of the derivative into "
        "one jit");
  return store;
}

std::vector<unsigned char> bytes_of(const Tensor& t) {
  std::vector<unsigned char> out(t.type().byte_size());
  t.read(out.data());
  return out;
}
std::vector<double> values_of(const Tensor& handles) {
  std::vector<double> out(size_of(handles.size()));
  handles.read(out.data());
  return out;
}

}  // namespace

/// Returns the bytes of one handle of `count` that have so many.
static std::size_t each_of(std::size_t bytes, std::size_t count) {
  if (count == 0) return 0;
  return bytes / count;
}

std::shared_ptr<const void> stores_of(const Tensor& handle) {
  const detail::HostValue* const host = Access::host(handle);
  if (!host) return nullptr;
  const DropsOwner* const has = std::get_deleter<DropsOwner>(host->data);
  if (has) return has->owner;
  return nullptr;
}

void keep_stores(Tensor& handles) {
  if (handles.dtype() != DType::f64) return;
  auto owner = std::make_shared<Owner>(Owner{detail::aligned_bytes(handles.type().byte_size())});
  handles.read(owner->bytes.get());
  const auto* const numbers = static_cast<const double*>(owner->bytes.get());
  for (std::int64_t i = 0; i < handles.size(); ++i)
    if (LooseStorePtr store = find_store(numbers[i])) owner->stores.push_back(std::move(store));
  if (!owner->stores.empty()) handles = owning(handles.type(), std::move(owner));
}

void keep_stores(std::span<const Tensor* const> operands, std::span<Tensor> results) {
  if (std::ranges::any_of(operands, [](const Tensor* t) { return stores_of(*t) != nullptr; }))
    for (Tensor& result : results) keep_stores(result);
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

static void push(std::int64_t k, Tensors& handles, TensorSpan leaves,
                 const ResidualOptions& options) {
  std::shared_ptr<host::ResidualBudget> budget;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const std::size_t count = size_of(handles[i].size());
    const std::vector<unsigned char> bytes = bytes_of(leaves[i]);
    const std::size_t one = each_of(bytes.size(), count);
    if (!stores_of(handles[i])) {
      if (!budget)
        budget = std::make_shared<host::ResidualBudget>(options, loose().files.get(options.file));
      handles[i] = new_handles(handles[i], one, budget);
    }
    const std::vector<double> numbers = values_of(handles[i]);
    for (std::size_t j = 0; j < count; ++j) {  // the elements of a batch, each with its store
      const LooseStorePtr store = store_of(numbers[j]);
      store->store.write(k, 1, bytes.data() + j * one);
      if (auto inner = stores_of(leaves[i])) store->inner.push_back(std::move(inner));
    }
  }
}

static Tensors read(std::int64_t k, TensorSpan handles, const Types& steps) {
  Tensors out;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    std::shared_ptr<void> bytes = detail::aligned_bytes(steps[i].byte_size());
    const std::vector<double> numbers = values_of(handles[i]);
    const std::size_t one = each_of(steps[i].byte_size(), numbers.size());
    for (std::size_t j = 0; j < numbers.size(); ++j) {
      auto* const to = static_cast<unsigned char*>(bytes.get()) + j * one;
      if (numbers[j] == 0)
        std::memset(to, 0, one);
      else
        store_of(numbers[j])->store.read(k, 1, to);
    }
    out.push_back(Access::make(std::make_shared<detail::HostValue>(steps[i], std::move(bytes))));
    keep_stores(out.back());
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
