// Arrays of DLPack that Postern cannot use: refused at once, and still the caller's.
#include <dlpack/dlpack.h>
#include <postern/dlpack.h>

#include <cstdint>
#include <functional>

#include "support.h"

namespace postern::test {
namespace {

/// f32[2,2], and what is called for it.
struct Given {
  Given() {
    array.dl_tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, dims, nullptr, 0};
    array.manager_ctx = &deleted;
    array.deleter = [](DLManagedTensor* self) { ++*static_cast<int*>(self->manager_ctx); };
  }
  float data[4] = {1, 2, 3, 4};
  std::int64_t dims[65] = {2, 2};
  int deleted = 0;
  DLManagedTensor array{};
};

using Damage = std::function<void(DLTensor&)>;
const std::pair<const char*, Damage> damages[] = {
    {"device type 2", [](DLTensor& t) { t.device.device_type = kDLCUDA; }},
    {"rank is -1", [](DLTensor& t) { t.ndim = -1; }},
    {"rank is 65", [](DLTensor& t) { t.ndim = 65; }},
    {"rank is 2", [](DLTensor& t) { t.shape = nullptr; }},
    {"NULL", [](DLTensor& t) { t.data = nullptr; }},
    {"0 or more", [](DLTensor& t) { t.shape[0] = -1; }},
    {"63 bits", [](DLTensor& t) { t.shape[0] = INT64_MAX; }},
    {"no dtype", [](DLTensor& t) { t.dtype.code = 99; }},
    {"no dtype", [](DLTensor& t) { t.dtype.bits = 31; }},
    {"2 lanes", [](DLTensor& t) { t.dtype.lanes = 2; }}};

TEST(Dlpack, WhatIsNoneIsRefusedAtOnceAlsoInATrace) {
  const auto in_each_place = [](const std::function<Tensor()>& take, std::string_view why) {
    const auto with = [&](Tensor x) { return x + sum(take()); };
    expect_error<TypeError>([&] { static_cast<void>(take()); }, {why});
    expect_error<TypeError>(
        [&] { static_cast<void>(grad([&](Tensor x) { return with(x); })(1.0f)); }, {why});
    expect_error<TypeError>([&] { static_cast<void>(jit(with).lower(1.0f)); }, {why});
    expect_error<TypeError>([&] { static_cast<void>(vmap(with)(ones(type<float>({2})))); }, {why});
    for (const Mode mode : all_modes)
      expect_error<TypeError>([&] { static_cast<void>(jit(with, {.mode = mode})(1.0f)); }, {why});
  };
  in_each_place([] { return from_dlpack(nullptr); }, "null");
  for (const auto& [why, damage] : damages) {
    Given given;
    damage(given.array.dl_tensor);
    in_each_place([&] { return from_dlpack(&given.array); }, why);
    EXPECT_EQ(given.deleted, 0) << why;
  }
}

TEST(Dlpack, TheDeleterIsCalledOnce) {
  Given given;
  std::int64_t transposed[] = {1, 2};
  for (std::int64_t* const strides : {static_cast<std::int64_t*>(nullptr), transposed}) {
    given.array.dl_tensor.strides = strides;
    given.deleted = 0;
    const std::vector<float> want =
        strides ? std::vector<float>{1, 3, 2, 4} : std::vector<float>{1, 2, 3, 4};
    EXPECT_EQ(from_dlpack(&given.array).to_vector<float>(), want);
    EXPECT_EQ(given.deleted, 1);
  }
}

}  // namespace
}  // namespace postern::test
