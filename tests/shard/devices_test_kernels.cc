// Kernels with sharding rules in programs over several devices: each runs on parts of its operands,
// and XLA gathers nothing.
#include <xla/ffi/api/ffi.h>

#include "devices_test.h"

namespace postern::test {
namespace {

using DevicesKernels = EightDevices;
namespace ffi = xla::ffi;

/// What kernels saw: the dims of their first operands.
class Seen {
 public:
  void add(Dims dims) {
    const std::scoped_lock lock(guard_);
    list_.push_back(std::move(dims));
  }
  std::vector<Dims> take() {
    const std::scoped_lock lock(guard_);
    return std::exchange(list_, {});
  }

 private:
  std::mutex guard_;
  std::vector<Dims> list_;
};
Seen& seen() {
  static Seen all;
  return all;
}

template <class Span>
Dims dims_of(const Span& span) {
  return Dims(span.begin(), span.end());
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    devices_test_plus_one,
    +[](ffi::Buffer<ffi::F32> in, ffi::Result<ffi::Buffer<ffi::F32>> out) {
      seen().add(dims_of(in.dimensions()));
      for (std::size_t i = 0; i < in.element_count(); ++i)
        out->typed_data()[i] = in.typed_data()[i] + 1;
      return ffi::Error::Success();
    },
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

ffi::Error dot_handler(ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> w,
                       ffi::Result<ffi::Buffer<ffi::F32>> out) {
  seen().add(dims_of(x.dimensions()));
  const auto rows = x.dimensions()[0], inner = x.dimensions()[1], columns = w.dimensions()[1];
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      float all = 0;
      for (std::int64_t k = 0; k < inner; ++k)
        all += x.typed_data()[i * inner + k] * w.typed_data()[k * columns + j];
      out->typed_data()[i * columns + j] = all;
    }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(devices_test_dot, dot_handler,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

FfiTarget target(const char* name, std::string rule) {
  register_ffi_handler("devices_test_plus_one", devices_test_plus_one);
  register_ffi_handler("devices_test_dot", devices_test_dot);
  FfiTarget out(name);
  out.sharding = std::move(rule);
  return out;
}
Tensor plus_one(const Tensor& x, const std::string& rule = "... -> ...") {
  return ffi_call(target("devices_test_plus_one", rule), x.type(), VmapMethod::broadcast_all, x);
}
Tensor product(const Tensor& x, const Tensor& w, const std::string& rule) {
  return ffi_call(target("devices_test_dot", rule), type<float>({x.dims()[0], w.dims()[1]}),
                  VmapMethod::sequential, x, w);
}

/// Runs it; what its kernels then saw, and the compiled text.
struct Ran {
  Tensor y;
  std::vector<Dims> parts;
  std::string text;
};
template <class F, class... A>
Ran ran(const F& f, const A&... x) {
  const auto compiled = jit(f);
  std::string optimized = compiled.compile(x...).optimized();
  seen().take();
  const Tensor y = compiled(x...);
  y.block_until_ready();
  return {y, seen().take(), std::move(optimized)};
}

TEST_F(DevicesKernels, RunOnPartsAndNothingIsGathered) {
  RecordProperty("covers", "BLOCK-14");
  const Sharding by_rows(Mesh({{"d", 4}}), P("d"));
  const Tensor x = device_put(counting({8, 6}), by_rows);
  const auto f = [](const std::string& rule) {
    return [rule](Tensor v) { return plus_one(tanh(v), rule) * 2.0f; };
  };
  const Floats want = ((tanh(counting({8, 6})) + 1.0f) * 2.0f).to_vector<float>();
  const Ran cut = ran(f("... -> ..."), x);
  expect_near(cut.y, tensor<float>(want, {8, 6}));
  EXPECT_EQ(cut.parts, std::vector<Dims>(4, Dims{2, 6}));
  EXPECT_FALSE(has(cut.text, "all-gather")) << cut.text;
  EXPECT_EQ(sharding_of(cut.y), by_rows);
  for (const char* rule : {"", "i j -> i j; whole i", "_ j -> _ j"}) {
    const Ran gathered = ran(f(rule), x);
    expect_near(gathered.y, tensor<float>(want, {8, 6}));
    EXPECT_EQ(gathered.parts, std::vector<Dims>(4, Dims{8, 6})) << rule;
    EXPECT_TRUE(has(gathered.text, "all-gather")) << rule;
  }
}

TEST_F(DevicesKernels, FactorsOfSeveralOperands) {
  RecordProperty("covers", "BLOCK-14");
  const Mesh mesh({{"a", 2}, {"b", 4}});
  const Tensor x = counting({8, 12}) / 50.0f, w = counting({12, 4}) / 50.0f;
  const auto f = [](const std::string& rule) {
    return [rule](Tensor u, Tensor v) { return product(u, v, rule); };
  };
  const std::string rule = "i k, k j -> i j; sum k";
  const auto tried = [&](const P& of_x, const P& of_w, const std::string& by, const Dims& part,
                         const char* collective) {
    const Ran got =
        ran(f(by), device_put(x, Sharding(mesh, of_x)), device_put(w, Sharding(mesh, of_w)));
    expect_near(got.y, dot(x, w));
    EXPECT_EQ(got.parts, std::vector<Dims>(8, part)) << by;
    for (const char* one : {"all-gather", "all-reduce"})
      EXPECT_EQ(has(got.text, one), std::string(one) == collective) << by << one << got.text;
  };
  tried(P("a"), P(std::nullopt, "b"), rule, {4, 12}, "");
  tried(P("b"), P(), rule, {2, 12}, "");
  tried(P(AxisNames{"a", "b"}), P(), rule, {1, 12}, "");
  tried(P(std::nullopt, "b"), P("b"), rule, {8, 3}, "all-reduce");
  tried(P("a", "b"), P("b"), rule, {4, 3}, "all-reduce");
  tried(P("a", "b"), P("b"), "i k, k j -> i j", {4, 12}, "all-gather");
}

struct Layer {
  static constexpr std::string_view name = "layer";
  double factor = 1;
};
Tensor layer(const Tensor& x, double factor = 2) {
  return block(
      Layer{factor}, [](const Layer& c, Tensor v) { return tanh(v) * c.factor; }, x);
}
/// A host function in its place, and a derivative of its own.
struct LayerKernel {
  explicit LayerKernel(BlockSharding<Layer> rule, bool vjp = false) {
    BlockOverride<Layer> o;
    o.platform = "cpu";
    o.kernel = [](const Layer& c, View<const float> in, View<float> out) {
      seen().add(dims_of(in.dims()));
      for (std::int64_t i = 0; i < in.size(); ++i)
        out.data()[i] = std::tanh(in.data()[i]) * static_cast<float>(c.factor);
    };
    o.batch = VmapMethod::broadcast_all;
    o.sharding = std::move(rule);
    if (vjp) {
      o.vjp.forward = [](const Layer& c, std::span<const Tensor> x) {
        return std::pair(std::vector<Tensor>{layer(x[0], c.factor)}, std::vector<Tensor>{x[0]});
      };
      o.vjp.backward = [](const Layer& c, std::span<const Tensor> kept,
                          std::span<const Tensor> ct) {
        const Tensor t = tanh(kept[0]);
        return std::vector<Tensor>{plus_one(ct[0] * c.factor * (1.0f - t * t)) - 1.0f};
      };
    }
    handle = override_block<Layer>(std::move(o));
  }
  ~LayerKernel() { handle.remove(); }
  OverrideHandle handle;
};

TEST_F(DevicesKernels, OverridesOfBlocksRunOnParts) {
  RecordProperty("covers", "BLOCK-14");
  const Tensor x = counting({8, 4}) / 10.0f;
  const Sharding by_rows(Mesh({{"d", 8}}), P("d"));
  const auto f = [](Tensor v) { return layer(v + 1.0f) * 3.0f; };
  const auto slope = [&](Tensor v) { return grad([&](Tensor u) { return sum(f(u)); })(v); };
  const Tensor want = f(x), want_slope = slope(x);
  for (const bool vjp : {false, true}) {
    const LayerKernel kernel("i j -> i j", vjp);
    const Ran value = ran(f, device_put(x, by_rows));
    expect_near(value.y, want);
    EXPECT_EQ(value.parts, std::vector<Dims>(8, Dims{1, 4}));
    EXPECT_FALSE(has(value.text, "all-gather"));
    const Ran derivative = ran(slope, device_put(x, by_rows));
    expect_near(derivative.y, want_slope);
    for (const Dims& part : derivative.parts) EXPECT_EQ(part, (Dims{1, 4}));
    EXPECT_EQ(derivative.parts.empty(), !vjp);
    EXPECT_FALSE(has(derivative.text, "all-gather")) << vjp;
    const auto both = [&](Tensor v) {
      return value_and_grad([&](Tensor u) { return sum(f(u)); })(v);
    };
    const auto [y, dy] = jit(both)(device_put(x, by_rows));
    expect_near(dy, want_slope);
    EXPECT_NEAR(y.item<float>(), sum(want).item<float>(), 1e-3f);
    seen().take();
    layer(device_put(x, by_rows)).block_until_ready();  // at once
    EXPECT_EQ(seen().take(), (std::vector<Dims>(8, Dims{1, 4})));
  }
  const LayerKernel by_config([](const Layer& c, std::span<const Type> in) {
    EXPECT_EQ(in[0].dims, (Dims{8, 4}));
    return c.factor == 2 ? "i _ -> i _" : "";
  });
  EXPECT_EQ(ran(f, device_put(x, by_rows)).parts, std::vector<Dims>(8, Dims{1, 4}));
  EXPECT_EQ(ran([](Tensor v) { return layer(v, 5); }, device_put(x, by_rows)).parts,
            std::vector<Dims>(1, Dims{8, 4}))
      << "a host function without a rule sees the whole once";
}

TEST_F(DevicesKernels, BatchesAreCutWithoutARule) {
  const Tensor x = counting({8, 4, 2}) / 10.0f, want = layer(x);
  const Sharding by_rows(Mesh({{"d", 4}}), P("d")), inner(Mesh({{"d", 2}}), P(std::nullopt, "d"));
  const auto f = vmap([](Tensor v) { return layer(v); });
  {
    const LayerKernel kernel("");
    const Ran got = ran(f, device_put(x, by_rows));
    expect_near(got.y, want);
    EXPECT_EQ(got.parts, std::vector<Dims>(4, Dims{2, 4, 2}));
    const Ran twice =
        ran(vmap(vmap([](Tensor v) { return layer(v); }), {.in_axes = 1}), device_put(x, by_rows));
    EXPECT_EQ(twice.parts, std::vector<Dims>(4, Dims{4, 2, 2}));
    expect_near(twice.y, transpose(want, {1, 0, 2}));
    const Ran whole = ran(f, device_put(x, inner));
    EXPECT_EQ(whole.parts, std::vector<Dims>(1, Dims{8, 4, 2}));
  }
  const LayerKernel kernel("i j -> i j");
  const Ran got = ran(f, device_put(x, inner));
  expect_near(got.y, want);
  EXPECT_EQ(got.parts, std::vector<Dims>(2, Dims{8, 2, 2}));
  const Ran targets =
      ran(vmap([](Tensor v) { return plus_one(v, "i j -> i j"); }), device_put(x, by_rows));
  EXPECT_EQ(targets.parts, std::vector<Dims>(4, Dims{2, 4, 2}));
  EXPECT_FALSE(has(targets.text, "all-gather"));
}

TEST_F(DevicesKernels, OperandsAreFollowedThroughPrograms) {
  const Mesh mesh({{"d", 4}});
  const Sharding by_rows(mesh, P("d"));
  const Tensor x = counting({8, 6}) / 20.0f, w = counting({6, 6}) / 40.0f, b = counting({6});
  const auto tried = [&](auto f, const Dims& part, std::size_t times = 4) {
    const Tensor want = f(x);
    const Ran got = ran(f, device_put(x, by_rows));
    expect_near(got.y, want, 1e-4f);
    EXPECT_EQ(got.parts, std::vector<Dims>(times, part)) << dims_to_string(part);
    EXPECT_FALSE(has(got.text, "all-gather")) << got.text;
  };
  tried([&](Tensor v) { return plus_one(dot(v, w) + b); }, {2, 6});
  tried([&](Tensor v) { return plus_one(transpose(v)); }, {6, 2});
  tried([&](Tensor v) { return plus_one(sum(v, {.axes = Dims{1}})); }, {2});
  tried([&](Tensor v) { return plus_one(v / sum(v + 1.0f, {.axes = Dims{1}, .keep_dims = true})); },
        {2, 6});
  tried([&](Tensor v) { return plus_one(reshape(v, {8, 2, 3})); }, {2, 2, 3});
  tried([&](Tensor v) { return plus_one(reshape(v, {48})); }, {12});
  tried([&](Tensor v) { return plus_one(slice(v, {0, 1}, {8, 5})); }, {2, 4});
  tried([&](Tensor v) { return plus_one(concatenate({v, v}, 1)); }, {2, 12});
  tried([&](Tensor v) { return plus_one(softmax(v)); }, {2, 6});
  tried([&](Tensor v) { return checkpoint([&](Tensor u) { return plus_one(u); })(v); }, {2, 6});
  tried(
      [&](Tensor v) {
        return fori_loop(
            0, 5, [&](Tensor, Tensor c) { return plus_one(dot(c, w)); }, v);
      },
      {2, 6}, 20);
  tried(
      [&](Tensor v) {
        return while_loop([](Tensor c) { return max(c) < 5.0f; },
                          [&](Tensor c) { return plus_one(c) + v * 0.0f; }, zeros(v.type()));
      },
      {2, 6}, 20);
  tried(
      [&](Tensor v) {
        return cond(
            max(v) > 0.0f, [&](Tensor c) { return plus_one(c); },
            [&](Tensor c) { return c * 2.0f; }, v);
      },
      {2, 6});
  const Ran tapped = ran([](Tensor v) { return plus_one(tap(v, [](View<const float>) {})); },
                         device_put(x, by_rows));
  EXPECT_EQ(tapped.parts, std::vector<Dims>(4, Dims{2, 6})) << "though the tap sees the whole";
  // What the program says itself.
  const Ran said = ran(
      [&](Tensor v) {
        return plus_one(device_put(v * 1.0f, Sharding(mesh, P(std::nullopt, "d"))));
      },
      device_put(counting({8, 8}), by_rows));
  EXPECT_EQ(said.parts, std::vector<Dims>(4, Dims{8, 2}));
}

TEST_F(DevicesKernels, WhatCannotBeCutIsThereAsAWhole) {
  const Sharding by_rows(Mesh({{"d", 4}}), P("d"));
  const Tensor x = counting({8, 6});
  // 6 rows are no parts of 4; the axis is cut already.
  const Ran few = ran(
      [](Tensor v) {
        return plus_one(slice(v, {0, 0}, {6, 6}));
      },
      device_put(x, by_rows));
  EXPECT_EQ(few.parts, std::vector<Dims>(4, Dims{6, 6}));
  const Ran twice = ran([](Tensor v) { return product(v, transpose(v), "i k, k j -> i j; sum k"); },
                        device_put(x, by_rows));
  expect_near(twice.y, dot(x, transpose(x)));
  EXPECT_EQ(twice.parts, std::vector<Dims>(4, Dims{2, 6}));
  EXPECT_EQ(ran([](Tensor v) { return plus_one(v); }, x).parts, std::vector<Dims>(1, Dims{8, 6}));
  // An override that declines parts.
  struct Removed {
    OverrideHandle handle;
    ~Removed() { handle.remove(); }
  } const large{override_block<Layer>(
      {.when = [](const Layer&, std::span<const Type> in) { return in[0].dims[0] >= 8; },
       .kernel =
           [](View<const float> in, View<float> out) {
             seen().add(dims_of(in.dims()));
             std::copy_n(in.data(), in.size(), out.data());
           },
       .sharding = "i j -> i j"})};
  EXPECT_EQ(ran([](Tensor v) { return layer(v); }, device_put(x, by_rows)).parts,
            std::vector<Dims>(1, Dims{8, 6}));
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    devices_test_note,
    +[](ffi::Buffer<ffi::F32> in) {
      seen().add(dims_of(in.dimensions()));
      return ffi::Error::Success();
    },
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>());

TEST_F(DevicesKernels, EffectsAreOfThePartOrOfTheWholeOnce) {
  register_ffi_handler("devices_test_note", devices_test_note);
  const Sharding by_rows(Mesh({{"d", 4}}), P("d"));
  const auto noted = [&](const std::string& rule) {
    FfiTarget note("devices_test_note");
    note.side_effect = true;
    note.sharding = rule;
    return ran(
        [note](Tensor v) {
          ffi_call(note, std::tuple<>(), std::nullopt, v + 1.0f);
          return v * 2.0f;
        },
        device_put(counting({8, 6}), by_rows));
  };
  EXPECT_EQ(noted("i j -> ").parts, std::vector<Dims>(4, Dims{2, 6}));
  EXPECT_EQ(noted("").parts, std::vector<Dims>(1, Dims{8, 6}));
}

// XLA asks in each round of a loop over devices whether the run goes on.
TEST_F(DevicesKernels, AnEffectInALoopOverDevicesNeedsNoSite) {
  register_ffi_handler("devices_test_note", devices_test_note);
  const Sharding by_rows(Mesh({{"d", 4}}), P("d"));
  FfiTarget note("devices_test_note");
  note.side_effect = true;
  note.sharding = "i j -> ";
  const Tensor x = counting({8, 6});
  const auto step = [note](Tensor, Tensor u) {
    ffi_call(note, std::tuple<>(), std::nullopt, u);
    return u * 2.0f;
  };
  const Ran got =
      ran([step](Tensor v) { return fori_loop(0, 3, step, v); }, device_put(x, by_rows));
  EXPECT_EQ(got.parts, std::vector<Dims>(12, Dims{2, 6}));
  expect_near(got.y, x * 8.0f, 0);
}

TEST_F(DevicesKernels, OursHaveRules) {
  const Sharding by_batch(Mesh({{"d", 4}}), P("d"));
  const Tensor a = counting({8, 3, 3}) / 100.0f;
  const Tensor x = matmul(a, transpose(a, {0, 2, 1})) + eye(DType::f32, 3, 3);
  const auto tried = [&](auto f, const Tensor& whole) {
    const Ran got = ran(f, device_put(whole, by_batch));
    expect_near(got.y, f(whole), 1e-3f);
    EXPECT_FALSE(has(got.text, "all-gather"));
    EXPECT_TRUE(has(got.text, "postern_call")) << "it is a kernel";
  };
  tried([](Tensor v) { return cumsum(v, -1); }, a);
  tried([](Tensor v) { return linalg::cholesky(v); }, x);
  tried([](Tensor v) { return linalg::lu(v).lu; }, x);
  tried([](Tensor v) { return linalg::eigh(v).first; }, x);
  tried([](Tensor v) { return linalg::qr(v).second; }, x);
  tried([](Tensor v) { return std::get<1>(linalg::svd(v)); }, x);
  tried([](Tensor v) { return linalg::solve(v, v); }, x);
}

TEST_F(DevicesKernels, InsideShardMapThePartIsTheWhole) {
  const auto f = shard_map([](Tensor v) { return plus_one(v); }, Mesh({{"d", 4}}),
                           {.in = {rows}, .out = {rows}});
  const Ran got = ran(f, counting({8, 6}));
  EXPECT_EQ(got.parts, std::vector<Dims>(4, Dims{2, 6}));
}

}  // namespace
}  // namespace postern::test
