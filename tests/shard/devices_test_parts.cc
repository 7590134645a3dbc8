// Inside shard_map and pmap a function is told which part of which whole it sees.
#include "devices_test.h"

#include <mutex>

namespace postern {
namespace {

using test::has;
using Floats = std::vector<float>;

Tensor counting(Dims dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return reshape(iota(type<float>({n}), 0), dims) / 7.0f;
}

/// A whole, put together from what taps of its parts show.
class Whole {
 public:
  auto listener() {
    return [this](const TapInfo& info, View<const float> v) {
      std::scoped_lock lock(guard_);
      ++firings_;
      if (info.part.empty()) {
        ++untold_;
        return;
      }
      std::int64_t extent = 1;
      for (const IndexRange& r : info.part) extent *= r.end - r.begin;
      EXPECT_EQ(extent, v.size());
      for (std::int64_t i = 0; i < v.size(); ++i) {
        std::vector<std::int64_t> index;
        std::int64_t rest = i;
        for (std::size_t d = info.part.size(); d-- > 0;) {
          const std::int64_t n = info.part[d].end - info.part[d].begin;
          index.insert(index.begin(), info.part[d].begin + rest % n);
          rest /= n;
        }
        const auto [place, fresh] = values_.emplace(index, v.data()[i]);
        EXPECT_TRUE(fresh || place->second == v.data()[i]);
      }
    };
  }
  Floats values() const {
    Floats out;
    for (const auto& [index, value] : values_)
      out.push_back(value);  // row-major: indices are in order
    return out;
  }
  int firings() const { return firings_; }
  int untold() const { return untold_; }

 private:
  std::mutex guard_;
  std::map<std::vector<std::int64_t>, float> values_;
  int firings_ = 0, untold_ = 0;
};

void expect_close(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-5f * (1 + std::abs(want[i]))) << i;
}

TEST(DevicesParts, ArgumentsAndWhatIsMadeOfThem) {
  RecordProperty("covers", "DEV-06 DEV-08");
  const Tensor x = counting({8, 6}), w = counting({6, 4});
  for (const std::int64_t n : {1, 2, 4, 8}) {
    const Mesh mesh({{"d", n}});
    Whole argument, elementwise, transposed, product, sums, spread, centred;
    int alike = 0;
    const auto layer = [&](Tensor v, Tensor weights, auto show) {
      show(argument, v);
      show(elementwise, tanh(v * 2.0f) + 1.0f);
      show(transposed, transpose(v));
      const Tensor y = dot(v, weights);
      show(product, y);
      show(sums, sum(y, {.axes = Dims{1}}));
      show(spread, sum(y, {.axes = Dims{1}, .keep_dims = true}) * y);
      return y;
    };
    auto f = jit(shard_map(
        [&](Tensor v) {
          const Tensor y = layer(v, w, [](Whole& whole, Tensor t) { tap(t, whole.listener()); });
          tap(y - pmean(y, "d"), centred.listener());
          tap(w * 1.0f,
              [&](const TapInfo& info, View<const float>) { alike += !info.part.empty(); });
          tap(psum(y, "d"),
              [&](const TapInfo& info, View<const float>) { alike += !info.part.empty(); });
          tap(dot(v, transpose(v)),
              [&](const TapInfo& info, View<const float>) { alike += !info.part.empty(); });
          tap(sum(v, {.axes = Dims{0}}),
              [&](const TapInfo& info, View<const float>) { alike += !info.part.empty(); });
          return y;
        },
        mesh, {.in = {P("d")}, .out = {P("d")}}));
    const Floats all = f(x).to_vector<float>();
    barrier();
    std::vector<std::pair<Whole*, Floats>> wanted;
    layer(x, w, [&](Whole& whole, Tensor t) { wanted.emplace_back(&whole, t.to_vector<float>()); });
    for (const auto& [whole, values] : wanted) {
      SCOPED_TRACE(whole - &argument);
      EXPECT_EQ(whole->firings(), n);
      EXPECT_EQ(whole->untold(), 0);
      expect_close(whole->values(), values);
    }
    EXPECT_EQ(centred.untold(), 0);
    EXPECT_EQ(centred.values().size(), all.size());
    EXPECT_EQ(alike, 0) << "what is the same on all devices, a sum of one device, or a block on a "
                           "diagonal is no part";
  }
}

TEST(DevicesParts, MeshesOfTwoAxes) {
  const Mesh mesh({{"x", 2}, {"y", 4}});
  const Tensor v = counting({8, 8});
  const std::vector<P> specs = {P("x", "y"), P("y", "x"), P(AxisNames{"x", "y"}),
                                P(std::nullopt, AxisNames{"y", "x"}), P("y")};
  for (const P& spec : specs) {
    SCOPED_TRACE(to_string(spec));
    Whole plain, turned;
    shard_map(
        [&](Tensor t) {
          tap(t + 1.0f, plain.listener());
          tap(transpose(t), turned.listener());
          return t;
        },
        mesh, {.in = {spec}, .out = {spec}})(v)
        .block_until_ready();
    barrier();
    EXPECT_EQ(plain.firings(), 8);
    expect_close(plain.values(), (v + 1.0f).to_vector<float>());
    expect_close(turned.values(), transpose(v).to_vector<float>());
  }
}

TEST(DevicesParts, LoopsBranchesAndInnerFunctions) {
  const Mesh mesh({{"d", 4}});
  Whole carried, captured, sliced, branch, kept;
  int unknown = 0;
  auto f = jit(shard_map(
      [&](Tensor v, Tensor rows) {
        const Tensor y = fori_loop(
            0, 3,
            [&](Tensor i, Tensor c) {
              tap(where(equal(i, 2), c, c), carried.listener());
              tap(v * 3.0f, captured.listener());
              return abs(c);
            },
            v);
        auto [last, stacked] = scan(
            [&](Tensor c, Tensor row) {
              tap(row, sliced.listener());
              return std::pair{psum(c, "d"), row + 1.0f};
            },
            v, rows);
        tap(last, [&](const TapInfo& info, View<const float>) { unknown += info.part.empty(); });
        tap(stacked, kept.listener());
        cond(
            v.dims()[0] > 0 ? Tensor(true) : Tensor(false),
            [&](Tensor t) { return tap(t, branch.listener()); }, [](Tensor t) { return t; }, y);
        return y;
      },
      mesh, {.in = {P("d"), P(std::nullopt, "d")}, .out = {P("d")}}));
  const Tensor v = counting({8}), rows = counting({1, 8});
  expect_close(f(v, rows).to_vector<float>(), v.to_vector<float>());
  barrier();
  EXPECT_EQ(carried.firings(), 12);
  EXPECT_EQ(carried.untold(), 0);
  expect_close(captured.values(), (v * 3.0f).to_vector<float>());
  expect_close(sliced.values(), rows.to_vector<float>());
  expect_close(kept.values(), (rows + 1.0f).to_vector<float>());
  EXPECT_EQ(unknown, 4);
  expect_close(branch.values(), v.to_vector<float>());
}

TEST(DevicesParts, PmapShowsWhichElement) {
  RecordProperty("covers", "DEV-01 DEV-08");
  Whole rows, products;
  const Tensor x = counting({4, 3}), w = counting({3, 2});
  const Tensor y = pmap([&](Tensor v) {
    tap(v * 2.0f, rows.listener());
    return tap(dot(v, w), products.listener());
  })(x);
  barrier();
  expect_close(rows.values(), (x * 2.0f).to_vector<float>());
  expect_close(products.values(), y.to_vector<float>());
}

TEST(DevicesParts, DerivativesAndBatches) {
  RecordProperty("covers", "DEV-09");
  const Mesh mesh({{"d", 4}});
  const Tensor x = counting({8});
  Whole values, slopes;
  const auto loss = [&](Tensor v) {
    return sum(shard_map(
        [&](Tensor t) {
          tap({.derivatives = true}, t, [&](const TapInfo& info, View<const float> seen) {
            (info.transforms.empty() ? values : slopes).listener()(info, seen);
          });
          return t * t;
        },
        mesh, {.in = {P("d")}, .out = {P("d")}})(v));
  };
  const Floats g = grad(loss)(x).to_vector<float>();
  barrier();
  expect_close(values.values(), x.to_vector<float>());
  EXPECT_EQ(slopes.untold(), 0);

  Whole batched;
  const Tensor rows = counting({3, 8});
  vmap(shard_map([&](Tensor t) { return tap(t, batched.listener()); }, mesh,
                 {.in = {P("d")}, .out = {P("d")}}))(rows)
      .block_until_ready();
  barrier();
  expect_close(batched.values(), rows.to_vector<float>());
}

TEST(DevicesParts, CallsAndPrintsAreToldToo) {
  const Mesh mesh({{"d", 2}});
  std::vector<std::string> lines;
  std::mutex guard;
  const Tensor y = shard_map(
      [&](Tensor v) {
        print_value({.label = "v",
                     .log =
                         [&](const PrintRecord& r) {
                           std::scoped_lock lock(guard);
                           lines.push_back(r.text);
                         }},
                    v);
        return call(
            v.type(),
            [](const CallInfo& info, View<const float> in, View<float> out) {
              for (std::int64_t i = 0; i < in.size(); ++i)
                out[i] = static_cast<float>(info.part[0].begin + i);
            },
            v);
      },
      mesh, {.in = {P("d")}, .out = {P("d")}})(zeros(type<float>({6})));
  barrier();
  EXPECT_EQ(y.to_vector<float>(), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(lines.size(), 2u);
}

TEST(DevicesParts, AreSavedWithTheProgram) {
  Whole whole;
  register_function("devices.parts", whole.listener());
  const Mesh mesh({{"d", 4}});
  auto f = jit(shard_map([&](Tensor v) { return tap(v * 2.0f, Named{"devices.parts"}); }, mesh,
                         {.in = {P("d")}, .out = {P("d")}}));
  const Tensor x = counting({8});
  const test::TemporaryFolder folder;
  save(folder.path() + "/parts.pn", f.lower(x));
  load(folder.path() + "/parts.pn")(x);
  barrier();
  unregister_function("devices.parts");
  expect_close(whole.values(), (x * 2.0f).to_vector<float>());
}

}  // namespace
}  // namespace postern
