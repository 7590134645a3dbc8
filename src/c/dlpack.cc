// Tensors to and from other libraries by DLPack.
#include <dlpack/dlpack.h>

#include <postern/dlpack.h>

#include "c/c_api.h"
#include "core/check.h"
#include "core/lists.h"
#include "run/array.h"

namespace postern {
using namespace internal;

namespace {

constexpr std::uint8_t dl_bool = 6;  // of later headers, as the codes of floats of 8 bits: 7 to 14

struct ElementType {
  DType dtype;
  std::uint8_t code, bits;
};
constexpr ElementType element_types[] = {
    {DType::pred, dl_bool, 8},  {DType::s8, kDLInt, 8},       {DType::s16, kDLInt, 16},
    {DType::s32, kDLInt, 32},   {DType::s64, kDLInt, 64},     {DType::u8, kDLUInt, 8},
    {DType::u16, kDLUInt, 16},  {DType::u32, kDLUInt, 32},    {DType::u64, kDLUInt, 64},
    {DType::f16, kDLFloat, 16}, {DType::bf16, kDLBfloat, 16}, {DType::f32, kDLFloat, 32},
    {DType::f64, kDLFloat, 64}, {DType::c64, kDLComplex, 64}, {DType::c128, kDLComplex, 128},
    {DType::f8e3m4, 7, 8},      {DType::f8e4m3, 8, 8},        {DType::f8e4m3b11fnuz, 9, 8},
    {DType::f8e4m3fn, 10, 8},   {DType::f8e4m3fnuz, 11, 8},   {DType::f8e5m2, 12, 8},
    {DType::f8e5m2fnuz, 13, 8}, {DType::f8e8m0fnu, 14, 8}};

DType dtype_of(const DLDataType& type) {
  for (const ElementType& p : element_types)
    if (p.code == type.code && p.bits == type.bits && type.lanes == 1) return p.dtype;
  throw_type_error(fmt::format("DLPack: no dtype has type code {}, {} bits and {} lanes", type.code,
                               type.bits, type.lanes));
}

DLDataType data_type_of(DType dtype) {
  for (const ElementType& p : element_types)
    if (p.dtype == dtype) return {p.code, p.bits, 1};
  throw_type_error(fmt::format("DLPack has no type for {}", to_string(dtype)));
}

/// Copies elements that lie apart to row-major memory. The index goes on like an odometer, the last
/// axis first, and takes `offset` with it.
void gather_rows(const DLTensor& from, std::size_t width, std::byte* to) {
  const auto rank = size_of(from.ndim);
  std::int64_t count = 1;
  for (std::size_t i = 0; i < rank; ++i) count *= from.shape[i];
  const auto* const data = static_cast<const std::byte*>(from.data) + from.byte_offset;
  Dims index(rank, 0);
  std::int64_t offset = 0;  // in elements
  for (std::int64_t i = 0; i < count; ++i) {
    std::copy_n(data + offset * static_cast<std::int64_t>(width), width, to + size_of(i) * width);
    for (std::size_t axis = rank; axis-- > 0;) {
      offset += from.strides[axis];
      if (++index[axis] < from.shape[axis]) break;
      offset -= from.strides[axis] * from.shape[axis];
      index[axis] = 0;
    }
  }
}

bool row_major(const DLTensor& tensor) {
  if (!tensor.strides) return true;
  std::int64_t stride = 1;
  for (int axis = tensor.ndim; axis-- > 0;) {
    if (tensor.shape[axis] > 1 && tensor.strides[axis] != stride) return false;
    stride *= tensor.shape[axis];
  }
  return true;
}

void let_go(DLManagedTensor* managed) {
  if (managed->deleter) managed->deleter(managed);
}

/// What keeps an exported tensor's memory alive.
struct Exported {
  DLManagedTensor managed{};
  Tensor tensor;
  std::shared_ptr<const void> bytes;
};

}  // namespace

Tensor from_dlpack(DLManagedTensor* managed, Place place) {
  PlaceScope at(place);
  check(managed != nullptr, "DLPack: the array is null");
  const DLTensor& t = managed->dl_tensor;
  check(t.device.device_type == kDLCPU || t.device.device_type == kDLCUDAHost,
        "DLPack: the tensor is on device type {}, not on the CPU",
        static_cast<int>(t.device.device_type));
  check(t.ndim >= 0 && t.ndim <= max_rank && (t.ndim == 0 || t.shape),
        "DLPack: the tensor's rank is {}", t.ndim);
  const Type type = make_type(dtype_of(t.dtype), Dims(t.shape, t.shape + t.ndim));
  check(t.data || type.byte_size() == 0, "DLPack: the tensor's data is NULL");
  if (row_major(t))
    return Tensor::borrow(type, static_cast<const std::byte*>(t.data) + t.byte_offset,
                          [managed] { let_go(managed); });
  std::shared_ptr<void> bytes = detail::aligned_bytes(type.byte_size());
  if (type.size() > 0) gather_rows(t, byte_width(type.dtype), static_cast<std::byte*>(bytes.get()));
  Tensor made = Tensor::borrow(type, bytes.get(), [bytes] {});
  let_go(managed);  // last: what throws before leaves it to the caller
  return made;
}

DLManagedTensor* to_dlpack(const Tensor& tensor, Place place) {
  PlaceScope at(place);
  auto exported = std::make_unique<Exported>();
  exported->tensor = tensor;
  const Type& type = exported->tensor.type();
  const DLDataType dtype = data_type_of(type.dtype);
  const void* const data = run::host_view(exported->tensor, exported->bytes);
  exported->managed.dl_tensor = {.data = const_cast<void*>(data),
                                 .device = {kDLCPU, 0},
                                 .ndim = static_cast<int>(type.rank()),
                                 .dtype = dtype,
                                 .shape = const_cast<std::int64_t*>(type.dims.data()),
                                 .strides = nullptr,  // row-major
                                 .byte_offset = 0};
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Exported*>(self->manager_ctx);
  };
  return &exported.release()->managed;
}

}  // namespace postern

using namespace postern;
using namespace postern::internal;

int pn_tensor_from_dlpack(DLManagedTensor* managed, pn_tensor** out) {
  return c::guarded(managed && out, "pn_tensor_from_dlpack: managed or out",
                    [&] { *out = new pn_tensor{from_dlpack(managed)}; });
}

int pn_tensor_to_dlpack(const pn_tensor* tensor, DLManagedTensor** out) {
  return c::guarded(tensor && out, "pn_tensor_to_dlpack: tensor or out",
                    [&] { *out = to_dlpack(tensor->tensor); });
}
