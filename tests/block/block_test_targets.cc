// Overrides of blocks that are FFI targets, and calls of targets.
#include <xla/ffi/api/ffi.h>

#include "block_test.h"

namespace postern {
namespace {

using test::has;
using test::Removed, test::Scale, test::expect_error, test::scale;
using Floats = std::vector<float>;

namespace ffi = xla::ffi;

ffi::Error scale_handler(ffi::Buffer<ffi::F32> in, ffi::Result<ffi::Buffer<ffi::F32>> out,
                         double factor, std::int64_t extra) {
  for (std::size_t i = 0; i < in.element_count(); ++i)
    out->typed_data()[i] =
        in.typed_data()[i] * static_cast<float>(factor) + static_cast<float>(extra);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(block_test_scale, scale_handler,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<double>("factor")
                                  .Attr<std::int64_t>("extra"));

TEST(Block, TargetsGetTheConfigAsTypedAttributes) {
  RecordProperty("covers", "BLOCK-04 BLOCK-14");
  if (test::skipped_in_stages("targets are custom calls")) return;
  register_ffi_handler("block_test_scale", block_test_scale);
  const Removed handle{
      override_block<Scale>({.platform = "cpu",
                             .target = FfiTarget("block_test_scale", {{"extra", 100}}),
                             .batch = VmapMethod::broadcast_all})};
  const Tensor x = tensor<float>({1, 2});
  EXPECT_EQ(jit([](Tensor v) { return scale(v, 0.1) + 0.0f; })(x).to_vector<float>(),
            (Floats{1 * 0.1f + 100, 2 * 0.1f + 100}));
  EXPECT_EQ(scale(x, 3).to_vector<float>(), (Floats{103, 106}));
  EXPECT_EQ(vmap([](Tensor v) { return scale(v, 3); })(x).to_vector<float>(), (Floats{103, 106}));
}

ffi::Error copy_handler(ffi::Buffer<ffi::F32> in, ffi::Result<ffi::Buffer<ffi::F32>> out,
                        bool in_place) {
  if (in_place && in.typed_data() != out->typed_data()) return ffi::Error::Internal("not in place");
  std::copy_n(std::vector<float>(in.typed_data(), in.typed_data() + in.element_count()).data(),
              in.element_count(), out->typed_data());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    block_test_copy, copy_handler,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>().Attr<bool>(
        "in_place"));

TEST(Block, TargetsMayAskForLayoutsAndMemory) {
  RecordProperty("covers", "BLOCK-14 CALL-20");
  if (test::skipped_in_stages("targets are custom calls")) return;
  register_ffi_handler("block_test_copy", block_test_copy, "cpu", true);
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  FfiTarget copy("block_test_copy", {{"in_place", false}});
  copy.operand_layouts = {{0, 1}};  // column-major
  auto f = [&](Tensor v) { return ffi_call(copy, type<float>({3, 2}), std::nullopt, v); };
  EXPECT_EQ(jit(f)(x).to_vector<float>(), (Floats{1, 4, 2, 5, 3, 6}))
      << "the transpose, by its layout";
  expect_error<TypeError>(
      [&] {
        vmap(f)(reshape(x, {1, 2, 3}));
      },
      {"block_test_copy", "no batching method"});
  copy.operand_layouts = {{}};
  copy.result_layouts = {{0, 1}};
  EXPECT_EQ(jit(f)(x).to_vector<float>(), (Floats{1, 4, 2, 5, 3, 6}));
  copy.result_layouts = {{0, 0}};
  expect_error<TypeError>([&] { f(x); }, {"block_test_copy", "result 0", "[0, 0]"});
  copy.result_layouts = {{0}, {1}};
  expect_error<TypeError>([&] { f(x); }, {"2 result layouts for 1 results"});

  FfiTarget in_place("block_test_copy", {{"in_place", true}});
  in_place.aliases = {{0, 0}};
  auto g = [&](Tensor v) { return ffi_call(in_place, v, VmapMethod::broadcast_all, v + 1.0f); };
  EXPECT_EQ(jit(g)(x).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
  in_place.aliases = {{0, 1}};
  expect_error<TypeError>([&] { g(x); }, {"alias of result 0 to operand 1"});
}

TEST(Block, TargetsThatAreBatchedOtherwiseAreNotMerged) {
  register_ffi_handler("block_test_copy", block_test_copy, "cpu", true);
  const FfiTarget copy("block_test_copy", {{"in_place", false}});
  auto both = [&](std::optional<VmapMethod> method) {
    return checkpoint([&, method](Tensor v) {
      const Tensor once = ffi_call(copy, v, VmapMethod::sequential, v);
      return std::pair(once, ffi_call(copy, v, method, v));
    });
  };
  const Tensor row = tensor<float>({1, 2}), rows = tensor<float>({1, 2, 3, 4}, {2, 2});
  auto calls = [&](std::optional<VmapMethod> method) {
    const std::string text = jit(both(method)).program(row).text();
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("= ffi_call", at)) != text.npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(calls(VmapMethod::sequential), 1u);
  EXPECT_EQ(calls(VmapMethod::broadcast_all), 2u);
  expect_error<TypeError>([&] { jit(vmap(both(std::nullopt)))(rows); },
                          {"block_test_copy", "no batching method"});
}

TEST(Block, AttributesThatXlaCannotCarryAreRefusedByName) {
  if (test::skipped_in_stages("targets are custom calls")) return;
  register_ffi_handler("block_test_copy", block_test_copy, "cpu", true);
  auto called = [](Attributes attributes) {
    const FfiTarget target("block_test_copy", std::move(attributes));
    return ffi_call(target, type<float>({2}), {}, tensor<float>({1, 2}));
  };
  expect_error<TypeError>(
      [&] {
        called({{"flags", std::vector<bool>{true}}});
      },
      {"'block_test_copy'", "'flags'", "a list of bools"});
  expect_error<TypeError>(
      [&] {
        called({{"words", std::vector<std::string>{"a"}}});
      },
      {"'block_test_copy'", "'words'", "a list of strings"});
  expect_error<TypeError>(
      [&] {
        called({{"", 1}});
      },
      {"'block_test_copy'", "an attribute has no name"});
  const auto e = test::error_of<Error>([&] {
    called({{"in_place", false}, {"more", 1}}).block_until_ready();
  });
  ASSERT_TRUE(e);
  EXPECT_TRUE(has(e->what(), "Wrong number of attributes") && has(e->what(), "'block_test_copy'"))
      << e->what();
}

TEST(Block, ResultsOverOperandsHaveTheirTypes) {
  register_ffi_handler("block_test_copy", block_test_copy, "cpu", true);
  FfiTarget in_place("block_test_copy", {{"in_place", true}});
  in_place.aliases = {{0, 0}};
  const Tensor x = tensor<float>({1, 2, 3, 4}, {2, 2});
  expect_error<TypeError>([&] { ffi_call(in_place, type<float>({4}), {}, x); },
                          {"'block_test_copy'", "result 0", "operand 0", "f32[2,2]", "f32[4]"});
  expect_error<TypeError>(
      [&] {
        ffi_call(in_place, type<std::int32_t>({2, 2}), {}, x);
      },
      {"f32[2,2]", "s32[2,2]"});
  in_place.aliases = {{0, 0}, {0, 1}};
  expect_error<TypeError>([&] { ffi_call(in_place, x.type(), {}, x, x); }, {"one alias each"});
  in_place.aliases = {{0, 0}};
  const Tensor narrow = convert(x, DType::bf16);
  in_place.operand_dtypes = {DType::f32};
  expect_error<TypeError>([&] { ffi_call(in_place, narrow.type(), {}, narrow); },
                          {"f32[2,2]", "bf16[2,2]"});
  EXPECT_EQ(ffi_call(in_place, x.type(), {}, narrow).to_vector<float>(), x.to_vector<float>());
}

/// Attributes of any names; notes what it saw.
std::vector<float> seen_by_target;
std::vector<std::string> attributes_seen;
ffi::Error note_handler(ffi::Buffer<ffi::F32> in, ffi::Dictionary attributes) {
  seen_by_target.insert(seen_by_target.end(), in.typed_data(),
                        in.typed_data() + in.element_count());
  attributes_seen.push_back(std::to_string(attributes.size()));
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(block_test_note, note_handler,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Attrs());
ffi::Error plus_handler(ffi::Buffer<ffi::F32> in, ffi::Result<ffi::Buffer<ffi::F32>> out,
                        ffi::Dictionary) {
  seen_by_target.push_back(static_cast<float>(in.element_count()));
  for (std::size_t i = 0; i < in.element_count(); ++i)
    out->typed_data()[i] = in.typed_data()[i] + 1;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    block_test_plus, plus_handler,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>().Attrs());

TEST(Block, TargetsHaveSideEffects) {
  if (test::skipped_in_stages("targets are custom calls")) return;
  register_ffi_handler("block_test_note", block_test_note);
  FfiTarget note("block_test_note",
                 {{"a \" name // of } any kind", 1}, {"b", std::vector<double>{1, 2}}});
  auto noted = [&](auto f, const auto&... x) {
    seen_by_target.clear();
    f(x...);
    barrier();
    return seen_by_target;
  };
  expect_error<TypeError>([&] { ffi_call(note, std::tuple<>(), {}, Tensor(1.0f)); },
                          {"without results", "side_effect"});
  note.side_effect = true;
  const auto f = jit([&](Tensor v) {
    ffi_call(note, std::tuple<>(), VmapMethod::sequential, v);
    ffi_call(note, std::tuple<>(), VmapMethod::sequential, v);
    return v * 2.0f;
  });
  EXPECT_EQ(noted(f, tensor<float>({1, 2})), (Floats{1, 2, 1, 2}))
      << "each of them, though nobody uses it";
  EXPECT_EQ(attributes_seen.back(), "2");
  auto sorted = [&](Floats v) {
    std::ranges::sort(v);
    return v;
  };
  EXPECT_EQ(sorted(noted(jit(vmap(f)), tensor<float>({1, 2}))), (Floats{1, 1, 2, 2}));
  EXPECT_EQ(sorted(noted(vmap([&](Tensor v) {
                           ffi_call(note, std::tuple<>(), VmapMethod::sequential, Tensor(5.0f));
                           return v;
                         }),
                         tensor<float>({1, 2}))),
            (Floats{5, 5}))
      << "once for each element";
  // Elements whose loop has ended have no effect.
  const auto loops = jit(vmap([&](Tensor n) {
    return while_loop([](Tensor i) { return i > 0.0f; },
                      [&](Tensor i) {
                        ffi_call(note, std::tuple<>(), VmapMethod::sequential, i);
                        return i - 1.0f;
                      },
                      n);
  }));
  EXPECT_EQ(sorted(noted(loops, tensor<float>({1, 3}))), (Floats{1, 1, 2, 3}));
  ASSERT_EQ(noted([&] { ffi_call(note, std::tuple<>(), {}, Tensor(7.0f)); }), (Floats{7}))
      << "at once";
}

TEST(Block, TargetsAreBatchedOneByOne) {
  if (test::skipped_in_stages("targets are custom calls")) return;
  register_ffi_handler("block_test_plus", block_test_plus);
  const FfiTarget plus("block_test_plus");
  auto f = [&](Tensor v) { return ffi_call(plus, v, VmapMethod::sequential, v); };
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  seen_by_target.clear();
  EXPECT_EQ(jit(vmap(f))(x).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(seen_by_target, (Floats{3, 3}));
  seen_by_target.clear();
  EXPECT_EQ(vmap(vmap(f))(x).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(seen_by_target, Floats(6, 1.0f));
  EXPECT_EQ(vmap(f, {.in_axes = 1})(x).to_vector<float>(), (Floats{2, 5, 3, 6, 4, 7}));
  expect_error<TypeError>([&] { ffi_call(plus, x, VmapMethod::parallel, x); },
                          {"sequential, expand_dims or broadcast_all"});
  const Removed handle{override_block<Scale>(
      {.platform = "cpu", .target = "block_test_plus", .batch = VmapMethod::sequential})};
  EXPECT_EQ(vmap([](Tensor v) { return scale(v, 3); })(x).to_vector<float>(),
            (Floats{2, 3, 4, 5, 6, 7}));
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    block_test_refuse,
    +[](ffi::Buffer<ffi::F32>, ffi::Result<ffi::Buffer<ffi::F32>>) {
      return ffi::Error(ffi::ErrorCode::kOutOfRange, "boom");
    },
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

TEST(Block, WhatATargetRefusesKeepsItsCodeAndText) {
  if (test::skipped_in_stages("targets are custom calls")) return;
  register_ffi_handler("block_test_refuse", block_test_refuse);
  const auto f = jit(
      [](Tensor v) { return ffi_call(FfiTarget("block_test_refuse"), v, std::nullopt, v + 1.0f); });
  for (int i = 0; i < 2; ++i)
    expect_error<Error>([&] { f(Tensor(1.0f)).block_until_ready(); }, {"boom"},
                        ErrorCode::out_of_range);
  EXPECT_EQ(jit([](Tensor v) { return v + 1.0f; })(Tensor(1.0f)).item<float>(), 2);
}

TEST(Block, BarrierListsAllThatTargetsRefused) {
  if (test::skipped_in_stages("targets are custom calls")) return;
  register_ffi_handler("block_test_refuse", block_test_refuse);
  const auto f = jit(
      [](Tensor v) { return ffi_call(FfiTarget("block_test_refuse"), v, std::nullopt, v + 1.0f); });
  for (int i = 0; i < 3; ++i) f.start(Tensor(1.0f));
  const auto e = test::error_of<CallbackError>([] { barrier(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->code(), ErrorCode::out_of_range);
  EXPECT_TRUE(has(e->what(), "boom") && has(e->what(), "and 2 more")) << e->what();
  EXPECT_EQ(e->count(), 3u);
  ASSERT_EQ(e->others().size(), 2u);
  EXPECT_TRUE(has(e->others()[1], "boom")) << e->others()[1];
  barrier();
}

TEST(Block, TargetsThatNobodyRegisteredAreReportedBeforeCompiling) {
  RecordProperty("covers", "BLOCK-15");
  if (test::skipped_in_stages("targets are custom calls")) return;
  const Removed handle{override_block<Scale>({.target = "block_test_missing"})};
  expect_error<TypeError>([] { jit([](Tensor x) { return scale(x, 3); }).lower(Tensor(1.0f)); },
                          {"scale", "block_test_missing", "cpu"});
  register_ffi_handler("block_test_refused", block_test_scale);
  const Removed other{
      override_block<Scale>({.target = FfiTarget("block_test_refused", {{"factor", 1}})})};
  expect_error<TypeError>([] { jit([](Tensor x) { return scale(x, 3); }).lower(Tensor(1.0f)); },
                          {"'factor'", "a field of the config"});
  expect_error<TypeError>([] { register_ffi_handler("postern_x", block_test_scale); },
                          {"postern_"});
}

}  // namespace
}  // namespace postern
