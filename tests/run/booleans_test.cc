// Booleans whose bytes are not 0 or 1, as masks of 0 and 255 have them: true at every door.
#include <dlpack/dlpack.h>
#include <postern/c.h>
#include <postern/dlpack.h>
#include <postern/record.h>

#include <array>
#include <cstring>
#include <memory>

#include "support.h"

namespace postern::test {
namespace {

constexpr std::array<unsigned char, 6> mask = {7, 0, 255, 0, 128, 1};
const std::vector<bool> truth = {true, false, true, false, true, true};
const Type masks = type<bool>({6});

/// As operations, host functions and reads see it.
void expect_truth(const Tensor& b, const std::string& door) {
  SCOPED_TRACE(door);
  EXPECT_EQ(sum(b).item<std::int32_t>(), 4);
  EXPECT_EQ(convert(b, DType::s32).to_vector<int>(), (std::vector<int>{1, 0, 1, 0, 1, 1}));
  EXPECT_EQ((b == Tensor(true)).to_vector<bool>(), truth);
  EXPECT_EQ(where(b, 1.0f, 0.0f).to_vector<float>(), (std::vector<float>{1, 0, 1, 0, 1, 1}));
  std::array<unsigned char, mask.size()> bytes{};
  b.read(bytes.data());
  for (const unsigned char byte : bytes) EXPECT_LE(byte, 1);
}

void fill(const AnyMutableView& v) { std::memcpy(v.data(), mask.data(), v.byte_size()); }

TEST(Booleans, OfMemoryAreTrueOrFalse) {
  expect_truth(Tensor(masks, mask.data()), "copied");
  expect_truth(make_tensor(masks, mask.data(), mask.size()), "made");
  const std::int64_t dims[] = {mask.size()};
  expect_truth(Tensor::copy_of(
                   View<const bool>(reinterpret_cast<const bool*>(mask.data()), dims, 1, dims[0])),
               "copied from a view");
  auto own = mask;
  const pn_array array{PN_PRED, 1, dims, own.data(), own.size()};
  pn_tensor* made = nullptr;
  ASSERT_EQ(pn_tensor_copy(&array, &made), PN_OK);
  pn_array seen{};
  ASSERT_EQ(pn_tensor_view(made, &seen), PN_OK);
  const auto* const bytes = static_cast<const unsigned char*>(seen.data);
  expect_truth(Tensor(masks, bytes), "C");
  for (std::size_t i = 0; i < mask.size(); ++i) EXPECT_EQ(bytes[i], mask[i] != 0);
  pn_tensor_free(made);
}

TEST(Booleans, BorrowedMemoryIsCopiedWhereItIsNone) {
  int released = 0;
  expect_truth(Tensor::borrow(masks, mask.data(), [&] { ++released; }), "borrowed");
  EXPECT_EQ(released, 1);
  const std::array<bool, 2> plain = {true, false};
  {
    const Tensor kept = Tensor::borrow(type<bool>({2}), plain.data(), [&] { ++released; });
    EXPECT_EQ(released, 1) << "0 and 1 are used as they are";
  }
  EXPECT_EQ(released, 2);
}

TEST(Booleans, OfDLPackAreTrueOrFalse) {
  for (const bool apart : {false, true}) {
    std::array<unsigned char, 2 * mask.size()> room{};
    for (std::size_t i = 0; i < mask.size(); ++i) room[i * (1 + apart)] = mask[i];
    std::int64_t dims[] = {mask.size()}, strides[] = {1 + apart};
    int deleted = 0;
    DLManagedTensor array{};
    array.dl_tensor = {room.data(), {kDLCPU, 0}, 1, {6, 8, 1}, dims, strides, 0};
    array.manager_ctx = &deleted;
    array.deleter = [](DLManagedTensor* self) { ++*static_cast<int*>(self->manager_ctx); };
    expect_truth(from_dlpack(&array), apart ? "strided" : "in rows");
    EXPECT_EQ(deleted, 1);
  }
}

/// The ways in which a function is entered.
const std::vector<std::pair<std::string, CallOptions>> ways = {
    {"plain", {}},
    {"ordered", {.effect = Effect::ordered}},
    {"limited", {.timeout = 60s}},
    {"warned", {.warn_after = 60s}}};

TEST(Booleans, OfHostFunctionsAreTrueOrFalse) {
  for (const auto& [name, options] : ways) {
    const auto in_place = [options = options] { return call(options, masks, fill); };
    expect_truth(in_place(), name + ", at once");
    for (const Mode mode : all_modes)
      expect_truth(jit(in_place, {.mode = mode})(),
                   name + ", mode " + std::to_string(static_cast<int>(mode)));
  }
  const auto by_value = [] {
    return call({}, masks, [](const CallInfo&) { return Tensor(masks, mask.data()); });
  };
  for (const Mode mode : all_modes) expect_truth(jit(by_value, {.mode = mode})(), "by value");
  expect_truth(jit([] { return wait(start_call({}, masks, fill)); })(), "started");
}

TEST(Booleans, OfBatchesAreTrueOrFalse) {
  for (const VmapMethod method :
       {VmapMethod::sequential, VmapMethod::parallel, VmapMethod::broadcast_all})
    for (const Mode mode : all_modes) {
      const auto batch = [&](Tensor x) {
        return vmap([&](Tensor one) {
          return call(
              {.vmap = method}, type<bool>(),
              [](std::span<const AnyView> in, std::span<const AnyMutableView> out) {
                for (std::int64_t i = 0; i < in[0].size(); ++i) {
                  const auto at = static_cast<std::size_t>(in[0].as<int>()[i]);
                  std::memcpy(out[0].data() + i, &mask[at], 1);
                }
              },
              one);
        })(x);
      };
      expect_truth(jit(batch, {.mode = mode})(iota<int>(6)),
                   "method " + std::to_string(static_cast<int>(method)));
    }
}

TEST(Booleans, StaySoWhereTheyAreReplayed) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/recording";
  const auto f = jit([] { return call({.effect = Effect::ordered}, masks, fill); });
  {
    const auto taping = record(file);
    static_cast<void>(f());
  }
  const auto taping = replay(file);
  expect_truth(f(), "replayed");
}

TEST(Booleans, DataThatIsNullIsRefused) {
  for (const DType dtype : {DType::pred, DType::f32}) {
    expect_error<TypeError>([&] { Tensor(make_type(dtype, {3}), nullptr); }, {"Tensor", "null"});
    expect_error<TypeError>([&] { Tensor::borrow(make_type(dtype, {3}), nullptr, {}); },
                            {"Tensor::borrow", "null"});
    EXPECT_EQ(Tensor::borrow(make_type(dtype, {0}), nullptr, {}).size(), 0);
  }
}

}  // namespace
}  // namespace postern::test
