// Operands of an entry as tensors over the program's memory, and results copied back into it.
#include "entry.h"

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "types.h"

namespace postern::torch {

namespace {

[[noreturn]] void bad_result(const std::string& text) {
  throw Error(ErrorCode::bad_result, "the torch function returned " + text);
}

std::string text_of(const at::Tensor& t) {
  return std::string(c10::toString(t.scalar_type())) +
         dims_to_string({t.sizes().data(), t.sizes().size()});
}

/// Copies a result into the program's memory. `dims`: as the result has them.
void write(const at::Tensor& y, const AnyMutableView& to, const Sizes& dims, std::size_t index) {
  const std::string which = "result " + std::to_string(index);
  if (!y.defined()) bad_result("an undefined tensor as " + which);
  if (y.sizes() != at::IntArrayRef(dims) || y.scalar_type() != scalar_type_of(to.dtype()))
    bad_result(text_of(y) + " as " + which + ", declared is " + std::string(to_string(to.dtype())) +
               dims_to_string(dims));
  if (y.is_contiguous() && !y.is_conj() && !y.is_neg() && y.device().is_cpu() &&
      y.layout() == at::kStrided) {
    if (to.byte_size()) std::memcpy(to.data(), y.data_ptr(), to.byte_size());
  } else {
    over(to.data(), dims, to.dtype()).copy_(y);
  }
}

}  // namespace

std::int64_t count_of(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

bool all_ones(const Sizes& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n == 1; });
}

Sizes leading(std::span<const std::int64_t> dims, const Type& declared) {
  return {dims.begin(), dims.end() - static_cast<std::ptrdiff_t>(declared.dims.size())};
}

Versions versions_of(const TorchTensors& tensors) {
  Versions versions;
  for (const at::Tensor& t : tensors) versions.push_back(t._version());
  return versions;
}

void check_unchanged(const TorchTensors& operands, const Versions& before) {
  const Versions now = versions_of(operands);
  const auto written = std::mismatch(now.begin(), now.end(), before.begin()).first - now.begin();
  if (static_cast<std::size_t>(written) < now.size())
    throw Error(ErrorCode::failed_precondition,
                "the torch function has written to operand " + std::to_string(written) +
                    ", which is the program's memory; it must clone() it first");
}

Operands::Operands(Views views, const std::vector<Type>& declared, const Sizes& batch, bool flat) {
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const AnyView& view = views[i];
    at::Tensor blob = over(view.data(), view.dims(), view.dtype());
    memory_.push_back(blob);
    if (!batch.empty()) blob = expanded(blob, declared[i], batch, flat);
    tensors.push_back(std::move(blob));
  }
}

Operands::~Operands() {
  try {
    release();
  } catch (...) {  // no memory, for what a function has kept that it must not keep
  }
}

std::vector<c10::Storage> Operands::storages() const {
  std::vector<c10::Storage> all;
  for (std::size_t i = 0; i < memory_.size(); ++i)
    all.push_back(tensors[i].storage().is_alias_of(memory_[i].storage()) ? memory_[i].storage()
                                                                         : c10::Storage());
  return all;
}

void Operands::check_unchanged() const {
  torch::check_unchanged(memory_, Versions(memory_.size()));
}

void Operands::release() {
  tensors.clear();
  for (at::Tensor& blob : memory_) {
    if (blob.use_count() == 1 && blob.storage().use_count() == 1) continue;
    const c10::Storage& storage = blob.storage();
    at::DataPtr own = c10::GetCPUAllocator()->allocate(storage.nbytes());
    if (storage.nbytes()) std::memcpy(own.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(own));
  }
  memory_.clear();
}

at::Tensor Operands::expanded(const at::Tensor& blob, const Type& declared, const Sizes& batch,
                              bool flat) {
  Sizes sizes = batch;
  sizes.insert(sizes.end(), declared.dims.begin(), declared.dims.end());
  at::Tensor whole = blob.expand(sizes);
  if (!flat || batch.size() == 1) return whole;
  sizes = declared.dims;
  sizes.insert(sizes.begin(), count_of(batch));
  return whole.reshape(sizes);
}

Entry::Entry(const Site& s, Views x, MutableViews y, const std::vector<Type>& x_types,
             const std::vector<Type>& y_types)
    : site(s), operands(x), results(y), in(x_types), out(y_types), flat(s.own_vmap) {
  if (!out.empty()) batch = leading(results[0].dims(), out[0]);
}

Sizes Entry::batch_of_first(std::size_t count) const {
  Sizes sizes(batch.size(), 1);
  for (std::size_t i = 0; i < count; ++i) {
    const Sizes has = leading(operands[i].dims(), in[i]);
    for (std::size_t level = 0; level < sizes.size(); ++level)
      sizes[level] = std::max(sizes[level], has[level]);
  }
  return all_ones(sizes) && !all_ones(batch) ? Sizes() : sizes;
}

std::int64_t Entry::ticket() const {
  const AnyView& tickets = operands[in.size()];
  return site.kept->own({reinterpret_cast<const std::int64_t*>(tickets.data()),
                         static_cast<std::size_t>(tickets.size())});
}

Sizes Entry::levels_at_one_point() const {
  const auto has = operands[in.size()].dims();
  Sizes levels;
  if (Kept::drew(ticket()))
    for (std::size_t i = 0; i < batch.size(); ++i)
      if (has[i] < batch[i]) levels.push_back(static_cast<std::int64_t>(i));
  return levels;
}

Sizes Entry::result_dims(std::size_t i) const {
  const auto dims = results[i].dims();
  if (!flat || batch.size() <= 1) return {dims.begin(), dims.end()};
  Sizes sizes = out[i].dims;
  sizes.insert(sizes.begin(), count_of(batch));
  return sizes;
}

void Entry::write_all(const TorchTensors& y) const {
  if (y.size() != out.size())
    bad_result(std::to_string(y.size()) + " tensors, declared are " + std::to_string(out.size()));
  for (std::size_t i = 0; i < out.size(); ++i) write(y[i], results[i], result_dims(i), i);
}

std::optional<std::int64_t> Entry::vmap_size() const {
  return batch.empty() || !site.own_vmap ? std::nullopt : std::optional(count_of(batch));
}

}  // namespace postern::torch
