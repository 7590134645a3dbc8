// What kernels say of their operands: dtypes in which they compute, and how they may be cut.
#include <xla/ffi/api/ffi.h>

#include "block_test.h"

namespace postern {
namespace {

using test::Removed, test::Scale, test::expect_error, test::scale;
using Floats = std::vector<float>;

namespace ffi = xla::ffi;

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    block_test_halve,
    +[](ffi::Buffer<ffi::F32> in, ffi::Result<ffi::Buffer<ffi::F32>> out) {
      for (std::size_t i = 0; i < in.element_count(); ++i)
        out->typed_data()[i] = in.typed_data()[i] / 2;
      return ffi::Error::Success();
    },
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

FfiTarget halve() {
  register_ffi_handler("block_test_halve", block_test_halve);
  FfiTarget out("block_test_halve");
  out.operand_dtypes = out.result_dtypes = {DType::f32};
  return out;
}

TEST(Block, OperandsOfTargetsAreConverted) {
  if (test::skipped_in_stages("targets are custom calls")) return;
  RecordProperty("covers", "BLOCK-14");
  const FfiTarget target = halve();
  const auto f = [&](const Tensor& x, DType out) {
    return jit([&, out](Tensor v) {
      return ffi_call(target, make_type(out, v.dims()), VmapMethod::broadcast_all, v);
    })(x);
  };
  const Tensor whole = tensor<std::int32_t>({1, 2, -5});
  EXPECT_EQ(f(whole, DType::f32).to_vector<float>(), (Floats{0.5f, 1, -2.5f}));
  EXPECT_EQ(to_string(f(whole, DType::f64)), "[ 0.5  1.  -2.5]");
  const Tensor half = convert(tensor<float>({3, 0.5f}), DType::bf16);
  const Tensor y = f(half, DType::bf16);
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(convert(y, DType::f32).to_vector<float>(), (Floats{1.5f, 0.25f}));
  EXPECT_EQ(f(tensor<bool>({true, false}), DType::f32).to_vector<float>(), (Floats{0.5f, 0}));
  EXPECT_EQ(vmap([&](Tensor v) { return f(v, DType::f32); })(tensor<std::int8_t>({2, 4}, {2, 1}))
                .to_vector<float>(),
            (Floats{1, 2}));

  const auto refused = [&](DType in, DType out, const std::string& what) {
    expect_error<TypeError>([&] { f(zeros(make_type(in, {2})), out); },
                            {"ffi_call 'block_test_halve'", what, "is not converted"});
  };
  refused(DType::f64, DType::f64, "it takes f32 for operand 0, to which f64[2]");
  refused(DType::c64, DType::f32, "to which c64[2]");
  refused(DType::f32, DType::s32, "it gives f32 for result 0, which is not converted to s32[2]");
  FfiTarget two = target;
  two.operand_dtypes = {DType::f32, DType::s32};
  expect_error<TypeError>([&] { ffi_call(two, type<float>({1}), {}, tensor<float>({1})); },
                          {"2 operand dtypes for 1 operand (f32, s32)"});
  two = target;
  two.result_dtypes = {DType::f32, DType::f32};
  expect_error<TypeError>([&] { ffi_call(two, type<float>({1}), {}, tensor<float>({1})); },
                          {"2 result dtypes for 1 result"});
}

TEST(Block, OperandsOfOverridesAreConverted) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
  RecordProperty("covers", "BLOCK-14");
  struct Root {};
  const auto root = [](const Tensor& x) {
    return block(
        Root{}, [](Tensor v) { return convert(sqrt(convert(v, DType::f64)), DType::f32); }, x);
  };
  int fired = 0;
  BlockOverride<Root> kernel;
  kernel.kernel = [&](View<const float> in, View<float> out) {
    ++fired;
    for (std::int64_t i = 0; i < in.size(); ++i) out[i] = std::sqrt(in[i]);
  };
  const Tensor whole = tensor<std::int32_t>({4, 9}), wide = tensor<double>({4, 9});
  {
    const Removed plain{override_block<Root>(kernel)};
    EXPECT_EQ(jit(root)(whole).to_vector<float>(), (Floats{2, 3}));
    EXPECT_EQ(fired, 0) << "it declines";
  }
  kernel.operand_dtypes = {DType::f32};
  const Removed handle{override_block<Root>(kernel)};
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(jit(root)(whole).to_vector<float>(), (Floats{2, 3}));
    EXPECT_EQ(fired, i);
  }
  EXPECT_EQ(root(whole).to_vector<float>(), (Floats{2, 3}));
  EXPECT_EQ(fired, 3);
  EXPECT_EQ(jit(root)(wide).to_vector<float>(), (Floats{2, 3}));
  EXPECT_EQ(fired, 3) << "what would lose something goes another way";
  EXPECT_TRUE(test::has(to_string(block_path(Root{}, {wide.type()})),
                        "declines: it takes f32 for operand 0, to which f64[2] is not converted"));
  EXPECT_TRUE(test::has(jit(root).compile(whole).optimized(), "convert"));

  // A target's are the override's.
  const Removed target{override_block<Root>({.target = halve()})};
  EXPECT_EQ(jit(root)(whole).to_vector<float>(), (Floats{2, 4.5f}));
  BlockOverride<Root> many;
  many.program = [](const Root&, std::span<const Tensor> x) { return std::vector<Tensor>{x[0]}; };
  many.operand_dtypes = {DType::f32, DType::f32};
  const Removed wrong{override_block<Root>(many)};
  expect_error<TypeError>([&] { jit(root)(whole); },
                          {"2 operand dtypes for 1 operand", "its override, a program"});
}

TEST(Block, RulesThatAreNoneAreRefused) {
  RecordProperty("covers", "BLOCK-14");
  FfiTarget target("block_test_halve");
  const auto refused = [&](const std::string& rule, const std::string& why) {
    target.sharding = rule;
    expect_error<TypeError>(
        [&] {
          ffi_call(target, type<float>({2, 3}), {}, zeros(type<float>({2, 3})));
        },
        {"ffi_call 'block_test_halve'", why});
    BlockOverride<Scale> o{.target = "block_test_halve"};
    o.sharding = rule;
    if (test::has(why, "the sharding rule"))
      expect_error<TypeError>([&] { override_block<Scale>(o); }, {"override_block 'scale'", why});
  };
  const std::string none = "the sharding rule ";
  refused("i j", none + "\"i j\" is none: between operands and results there must be one '->'");
  refused("i -> j -> k", none);
  refused("i 2j -> i j", none + "\"i 2j -> i j\" is none: '2j' is no name of an axis");
  refused("i, -> j-k", none);
  refused("i i -> i j", none + "\"i i -> i j\" is none: 'i' stands twice in 'i i'");
  refused("... ... -> i j", none);
  refused("i j -> i j; all i",
          none + "\"i j -> i j; all i\" is none: behind ';' comes whole or sum");
  refused("i j -> i j; whole k", none + "\"i j -> i j; whole k\" is none: no operand has the 'k'");
  refused("i j -> i j; sum j", none + "\"i j -> i j; sum j\" is none: a result has the 'j' of sum");

  refused("i j, k -> i j", "its sharding rule is for 2 operands, there are 1");
  refused("i j -> i j, i", "its sharding rule is for 2 results, there are 1");
  refused("i -> i j", "its sharding rule says 'i' of operand 0, which is f32[2,3]");
  refused("... i j k -> i j", "its sharding rule says '... i j k' of operand 0");
  refused("i j -> j i",
          "its sharding rule has 'j' for axis 1 of operand 0, of 3, and for axis 0 of "
          "result 0, of 2");
  target.aliases = {{0, 0}};
  refused("i j -> i _", "result 0 is written over operand 0, and its sharding rule cuts them");
  target.aliases = {};
  target.sharding = "i j -> i; sum j";
  expect_error<TypeError>(
      [&] {
        ffi_call(target, type<bool>({2}), {}, zeros(type<float>({2, 3})));
      },
      {"its sharding rule sums up results, and one is pred[2]"});

  // Of an override that fits no block it is said where the block is used.
  BlockOverride<Scale> o{.program = [](const Scale&, std::span<const Tensor> x) {
    return std::vector<Tensor>{x[0] * 3.0f};
  }};
  o.sharding = "i j -> i j";
  const Removed handle{override_block<Scale>(o)};
  EXPECT_EQ(jit([](Tensor v) { return scale(v, 3); })(ones(type<float>({1, 2}))).to_vector<float>(),
            (Floats{3, 3}));
  expect_error<TypeError>([&] { jit([](Tensor v) { return scale(v, 3); })(tensor<float>({1})); },
                          {"block scale: its override, a program", "says 'i j' of operand 0"});
  o.sharding = [](const Scale&, std::span<const Type>) { return "what"; };
  const Removed later{override_block<Scale>(o)};
  expect_error<TypeError>([&] { scale(tensor<float>({1}), 3); }, {none + "\"what\" is none"});
}

}  // namespace
}  // namespace postern
