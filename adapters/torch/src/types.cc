// Each dtype beside torch's, and torch's errors without their backtraces.
#include "types.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <array>
#include <typeinfo>

namespace postern::torch {

namespace {

struct Pair {
  DType ours;
  at::ScalarType theirs;
};
constexpr Pair pairs[] = {
    {DType::pred, at::kBool},  {DType::s8, at::kChar},          {DType::s16, at::kShort},
    {DType::s32, at::kInt},    {DType::s64, at::kLong},         {DType::u8, at::kByte},
    {DType::f16, at::kHalf},   {DType::bf16, at::kBFloat16},    {DType::f32, at::kFloat},
    {DType::f64, at::kDouble}, {DType::c64, at::kComplexFloat}, {DType::c128, at::kComplexDouble},
};

/// The same error, of the same class, with a text that is the same from run to run.
template <class E>
struct Short : E {
  using E::E;
  const char* what() const noexcept override { return this->what_without_backtrace(); }
};
template <class E>
[[noreturn]] void throw_short(const c10::Error& error) {
  throw Short<E>(std::string(error.what_without_backtrace()), std::string());
}

}  // namespace

bool torch_has(DType dtype) {
  for (const Pair& p : pairs)
    if (p.ours == dtype) return true;
  return false;
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const Pair& p : pairs)
    if (p.ours == dtype) return p.theirs;
  throw TypeError("torch has no tensors of " + std::string(to_string(dtype)));
}

DType dtype_of(at::ScalarType type) {
  for (const Pair& p : pairs)
    if (p.theirs == type) return p.ours;
  throw TypeError("postern has no dtype for torch's " + std::string(c10::toString(type)));
}

Type type_of(const at::Tensor& tensor) {
  return {dtype_of(tensor.scalar_type()), Dims(tensor.sizes().begin(), tensor.sizes().end())};
}

bool differentiable(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

at::Tensor conjugate(const at::Tensor& t) { return t.is_complex() ? t.conj() : t; }

at::Tensor over(const void* data, std::span<const std::int64_t> dims, DType dtype) {
  return at::from_blob(const_cast<void*>(data), at::IntArrayRef(dims.data(), dims.size()),
                       at::TensorOptions(scalar_type_of(dtype)));
}

void rethrow_shortly() {
  try {
    throw;
  } catch (const c10::Error& error) {
    const std::type_info& type = typeid(error);
    if (type == typeid(c10::IndexError)) throw_short<c10::IndexError>(error);
    if (type == typeid(c10::ValueError)) throw_short<c10::ValueError>(error);
    if (type == typeid(c10::TypeError)) throw_short<c10::TypeError>(error);
    if (type == typeid(c10::NotImplementedError)) throw_short<c10::NotImplementedError>(error);
    if (type == typeid(c10::LinAlgError)) throw_short<c10::LinAlgError>(error);
    if (type == typeid(c10::OutOfMemoryError)) throw_short<c10::OutOfMemoryError>(error);
    throw_short<c10::Error>(error);
  }
}

}  // namespace postern::torch
