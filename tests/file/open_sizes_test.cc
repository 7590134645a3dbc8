// Saved programs that leave sizes open: what is right at every size, and what is refused.
#include <postern/linalg.h>

#include <cmath>

#include "core/digest.h"
#include "file/sizes.h"
#include "support.h"

namespace postern::test {
namespace {

Type rows(const char* name = "n") { return type<float>({any(name), 3}); }

Tensor numbers(const Dims& dims) {
  std::vector<float> out;
  const Type t = type<float>(dims);
  for (std::int64_t i = 0; i < t.size(); ++i) out.push_back(std::sin(static_cast<float>(i + 1)));
  return Tensor(t, out.data());
}

template <class F>
Loaded kept(const F& f, const std::vector<Type>& types) {
  const auto all = jit([f](const std::vector<Tensor>& x) -> std::vector<Tensor> { return f(x); });
  std::vector<Tensor> arguments;
  for (const Type& t : types) arguments.push_back(abstract(t));
  return load_text(saved_text(all.lower(arguments)), "open.mlir");
}

using Tensors = std::vector<Tensor>;

void expect_same(const Tensors& got, const Tensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(to_string(got[i].type()), to_string(wanted[i].type()));
    const auto is = convert<double>(got[i]).to_vector<double>();
    const auto should = convert<double>(wanted[i]).to_vector<double>();
    if (plugin_info().calls_back) {
      EXPECT_EQ(is, should);
    } else {  // what stands for kernels rounds as XLA fuses it
      for (std::size_t j = 0; j < should.size(); ++j)
        EXPECT_NEAR(is.at(j), should[j], 1e-6 * std::max(1.0, std::abs(should[j])));
    }
  }
}

TEST(OpenSizes, AProgramRunsAtEverySize) {
  const auto f = [](const Tensors& x) -> Tensors {
    const Tensor n = sum(ones_like(x[0]));
    return {mean(x[0], 0),
            variance(x[0], 0, 1),
            softmax(x[0]),
            reshape(x[0], {-1}),
            concatenate({x[0], x[0] * 2.0f}, 0),
            dot(x[0], transpose(x[0])),
            n,
            sort(x[0], 0),
            cumsum(x[0], 0),
            sqrt(mean(square(x[0])))};
  };
  const Loaded program = kept(f, {rows()});
  EXPECT_EQ(to_string(program.inputs()), "(f32[-1,3])");
  EXPECT_EQ(to_string(program.outputs()[3]), "f32[-1]");
  EXPECT_EQ(to_string(program.outputs()[0]), "f32[3]");
  for (const std::int64_t n : {2, 3, 5, 67, 1000}) {
    SCOPED_TRACE(n);
    const Tensors x = {numbers({n, 3})};
    expect_same(program.run(x), jit(f)(x));
  }
}

TEST(OpenSizes, InsideOfOtherProgramsWithDerivatives) {
  const auto f = [](const Tensors& x) -> Tensors { return {sum(square(x[0]) / 2.0f)}; };
  const Loaded program = kept(f, {rows()});
  const auto g = jit(grad([&](Tensor v) { return program(v)[0]; }));
  for (const std::int64_t n : {1, 4}) {
    const Tensor x = numbers({n, 3});
    EXPECT_EQ(g(x).to_vector<float>(), x.to_vector<float>());
  }
  const Tensor both = vmap([&](Tensor v) { return program(v)[0]; })(numbers({2, 5, 3}));
  EXPECT_EQ(both.dims(), Dims{2});
}

TEST(OpenSizes, SeveralSizesAndNumbersMadeOfThem) {
  const auto f = [](const Tensors& x) -> Tensors {
    return {dot(x[0], x[1]), mean(x[0]), pad(x[1], 0.0f, {1, 0}, {2, 0}), x[2] + sum(x[0], 1),
            slice(x[2], {0}, x[2].dims(), {2})};
  };
  const Loaded program = kept(
      f, {type<float>({any("n"), any("m")}), type<float>({any("m"), 2}), type<float>({any("n")})});
  for (const auto& [n, m] : std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 3}, {7, 7}}) {
    const Tensors x = {numbers({n, m}), numbers({m, 2}), numbers({n})};
    expect_same(program.run(x), jit(f)(x));
  }
  const auto wrong = [&](const Tensors& x, std::initializer_list<std::string_view> words) {
    expect_error<TypeError>([&] { program.run(x); }, words);
  };
  wrong({numbers({2, 3}), numbers({4, 2}), numbers({2})},
        {"argument 1 of the saved program must be f32[m,2]", "f32[4,2]", "m is 3 in argument 0"});
  wrong({numbers({2, 3}), numbers({3, 2}), numbers({3})}, {"argument 2", "f32[n]", "n is 2"});
  wrong({numbers({2, 3}), numbers({3, 5}), numbers({2})}, {"argument 1", "f32[m,2]", "f32[3,5]"});
  wrong({numbers({2, 3}), numbers({3, 2})}, {"takes 3 arguments, 2 came"});
  wrong({numbers({2, 3, 1}), numbers({3, 2}), numbers({2})}, {"argument 0", "f32[n,m]"});
  wrong({convert(numbers({2, 3}), DType::f64), numbers({3, 2}), numbers({2})}, {"f64[2,3]"});
}

TEST(OpenSizes, HostFunctionsBlocksAndDollarsAreKept) {
  register_function("open.twice", [](View<const float> x, View<float> y) {
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = 2 * x[i];
  });
  const auto f = [](const Tensors& x) -> Tensors {
    const Tensor y = call({.name = "costs 5$ ${n}"}, x[0].type(), Named{"open.twice"}, x[0]);
    return {cumsum(y, 0), linalg::cholesky(dot(transpose(y), y) + 9.0f * eye<float>(3))};
  };
  const Loaded program = kept(f, {rows()});
  EXPECT_EQ(program.sites().at(0).name, "costs 5$ ${n}");
  for (const std::int64_t n : {2, 100}) {
    const Tensors x = {numbers({n, 3})};
    expect_same(program.run(x), jit(f)(x));
  }
  unregister_function("open.twice");
}

TEST(OpenSizes, OfEveryWayToRun) {
  const auto f = [](const Tensors& x) -> Tensors { return {x[0] * 2.0f, mean(x[0])}; };
  const Loaded program = kept(f, {rows()});
  const Tensors x = {numbers({4, 3})};
  const Tensors wanted = program.run(x);
  program.compile();
  expect_same(program.run(x, RunOptions()), wanted);
  expect_same(program.start(x).result(), wanted);
  std::vector<float> in = x[0].to_vector<float>(), out(12);
  float middle = 0;
  const void* const given[] = {in.data()};
  void* const results[] = {out.data(), &middle};
  native(program, {x[0].type()})(given, results);
  EXPECT_EQ(out, wanted[0].to_vector<float>());
  EXPECT_EQ(middle, wanted[1].item<float>());
  EXPECT_FALSE(program.operations().empty());
  int seen = 0;
  const Loaded watched = program.with_tap(
      "multiply", [&](View<const float> v) { seen += static_cast<int>(v.size()); });
  expect_same(watched.run(x), wanted);
  EXPECT_GE(seen, 12);
}

// Of a function that does something else for few rows.
TEST(OpenSizes, TheLeastSizeIsFoundAndKept) {
  const auto f = [](const Tensors& x) -> Tensors {
    return {slice(x[0], {0, 0}, {5, 3}, {1, 1}) + sum(x[0])};
  };
  const Loaded program = kept(f, {rows()});
  EXPECT_EQ(program(numbers({6, 3}))[0].dims(), (Dims{5, 3}));
  expect_error<TypeError>(
      [&] {
        program(numbers({4, 3}));
      },
      {"f32[n,3]", "f32[4,3]", "n must be at least 6"});
  const Loaded any_size = kept([](const Tensors& x) -> Tensors { return {x[0] + x[0]}; }, {rows()});
  EXPECT_EQ(any_size(numbers({0, 3}))[0].dims(), (Dims{0, 3}));
}

// What tracing leaves out or makes once where sizes are equal changes no values.
TEST(OpenSizes, SizesMayBeEqual) {
  const auto f = [](const Tensors& x) -> Tensors {
    const std::int64_t n = x[0].dims()[0], m = x[0].dims()[1];
    return {softmax(x[0]),
            variance(x[0]),
            reshape(x[0], {m, n}),
            expand_dims(iota<float>(n), 1) + iota<float>(m) + x[0],
            mean(x[0], 0) + sum(mean(x[0], 1)),
            matmul(transpose(x[0]), x[0]) / static_cast<float>(n),
            triu(x[0]),
            x[0] + expand_dims(cumsum(iota<float>(n), 0), 1) + cumsum(iota<float>(m), 0),
            layer_norm(x[0], x[1], x[1])};
  };
  const Loaded program = kept(f, {type<float>({any("n"), any("m")}), type<float>({any("m")})});
  for (const auto& [n, m] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{5, 5}, {81, 81}, {200, 200}, {5, 9}}) {
    SCOPED_TRACE(n);
    const Tensors x = {numbers({n, m}), numbers({m})};
    expect_same(program.run(x), jit(f)(x));
  }
}

TEST(OpenSizes, SizesThatMustDifferAreFound) {
  const auto f = [](const Tensors& x) -> Tensors {
    if (x[0].dims()[0] == x[0].dims()[1]) return {x[0]};
    return {-x[0]};
  };
  const Loaded program = kept(f, {type<float>({any("n"), any("m")})});
  for (const Dims& dims : {Dims{2, 3}, Dims{3, 2}, Dims{1, 2}, Dims{90, 81}}) {
    const Tensors x = {numbers(dims)};
    expect_same(program.run(x), jit(f)(x));
  }
  for (const std::int64_t n : {1, 2, 81, 1000})
    expect_error<TypeError>(
        [&] {
          program.run({numbers({n, n})});
        },
        {"n and m of the saved program are both", "another program"});
}

TEST(OpenSizes, CapturesOfEqualSizesAreCompared) {
  const Tensor equal = tensor<float>({1, 2}), other = tensor<float>({3, 4});
  const auto f = [&](const Tensors& x) -> Tensors {
    return {x[0] + sum(x[0].dims()[0] == x[0].dims()[1] ? equal : other)};
  };
  const Loaded program = kept(f, {type<float>({any("n"), any("m")})});
  const Tensors x = {numbers({3, 4})};
  expect_same(program.run(x), jit(f)(x));
  expect_error<TypeError>([&] { program.run({numbers({4, 4})}); }, {"another program"});
}

TEST(OpenSizes, SizesThatAreTooSmallTogetherAreFound) {
  const auto f = [](const Tensors& x) -> Tensors {
    if (x[0].size() < 1000) return {x[0]};
    return {-x[0]};
  };
  const Loaded program = kept(f, {type<float>({any("n"), any("m")})});
  for (const Dims& dims : {Dims{60, 70}, Dims{64, 64}, Dims{200, 300}}) {
    const Tensors x = {numbers(dims)};
    expect_same(program.run(x), jit(f)(x));
  }
  for (const Dims& dims : {Dims{16, 40}, Dims{10, 13}, Dims{31, 32}})
    expect_error<TypeError>([&] { program.run({numbers(dims)}); }, {"must be at least"});
}

TEST(OpenSizes, WhatIsAnotherProgramAtOtherSizesIsRefused) {
  const auto refused = [](const auto& f, std::initializer_list<std::string_view> words) {
    expect_error<TypeError>([&] { kept(f, {rows()}); }, words);
  };
  const auto unrolled = [](const Tensors& x) -> Tensors {
    Tensor y = zeros(type<float>({3}));
    for (std::int64_t i = 0; i < x[0].dims()[0]; ++i) y = y + take(x[0], Tensor(0), 0);
    return {y};
  };
  refused(unrolled, {"save", "open_sizes_test.cc", "n = "});
  const auto tests = [](const Tensors& x) -> Tensors {
    if (x[0].dims()[0] > 100) return {exp(x[0])};
    return {tanh(x[0])};
  };
  refused(tests, {"save: sizes are open", "tanh", "open_sizes_test.cc", "exp"});
  const auto tests_late = [](const Tensors& x) -> Tensors {
    if (x[0].dims()[0] > 1700) return {exp(x[0])};
    return {tanh(x[0])};
  };
  refused(tests_late, {"save: sizes are open", "tanh", "exp", "n = 1709"});
  const auto shuffled = [](const Tensors& x) -> Tensors {  // in one round or two
    return {random::permutation(random::key(1), x[0])};
  };
  refused(shuffled, {"save: sizes are open", "open_sizes_test.cc"});
  const auto strange = [](const Tensors& x) -> Tensors {
    return {x[0] * std::log(static_cast<float>(x[0].dims()[0]))};
  };
  refused(strange, {"numbers", "open_sizes_test.cc"});
  const auto fixed = [](const Tensors& x) -> Tensors { return {x[0] + numbers({5, 3})}; };
  refused(fixed, {"[5,3] do not broadcast"});
  const auto table = [](const Tensors& x) -> Tensors { return {x[0] + numbers(x[0].dims())}; };
  refused(table, {"save"});
}

TEST(OpenSizes, AnOpenSizeIsForSavingAlone) {
  expect_error<TypeError>([] { static_cast<void>(any("2n")); }, {"any", "'2n'"});
  expect_error<TypeError>([] { static_cast<void>(any("")); }, {"any"});
  EXPECT_EQ(to_string(rows()), "f32[n,3]");
  EXPECT_EQ(any("n"), any(std::string("n")));
  EXPECT_NE(any("n"), any("m"));
  expect_error<TypeError>([] { static_cast<void>(zeros(rows())); }, {"f32[n,3]", "open"});
  expect_error<TypeError>([] { static_cast<void>(rows().size()); }, {"f32[n,3]", "open"});
  const auto f = jit([](Tensor x) { return x * 2.0f; });
  expect_error<TypeError>([&] { static_cast<void>(f.program(abstract(rows()))); },
                          {"f32[n,3]", "open"});
  expect_error<TypeError>([&] { static_cast<void>(native(f.lower(abstract(rows())))); }, {"open"});
  EXPECT_EQ(to_string(f.lower(abstract(rows())).outputs()), "(f32[67,3])");
}

TEST(OpenSizes, NumbersOfSizesAreRoundedOnce) {
  const std::vector<std::string> names{"n"};
  const auto at = [&](std::string_view text, std::int64_t n) {
    return std::stod(internal::file::Expression::read(text, names).at({n}));
  };
  // Just below the middle of two numbers of f16, which is the float next to it.
  EXPECT_EQ(static_cast<float>(at("f32 1/(n)", 8283)), std::ldexp(4051.0f, -25));
  EXPECT_EQ(static_cast<float>(at("f16 1/(n)", 8283)), std::ldexp(2025.0f, -24));
  EXPECT_EQ(static_cast<float>(at("bf16 1/(n)", 3)), 0x1.56p-2f);
  EXPECT_EQ(at("f64 1/(n)", 3), 1.0 / 3);
}

TEST(OpenSizes, ADamagedFileIsRefused) {
  const auto f = jit([](Tensor x) { return mean(x, 0); });
  const std::string text = saved_text(f.lower(abstract(rows())));
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const std::size_t at = other.find(from);
    ASSERT_NE(at, other.npos) << from;
    other.replace(at, from.size(), to);
    const std::size_t sum = other.find("// checksum ") + 12, end = other.find('\n', sum);
    other.replace(sum, end - sum, internal::digest(std::string_view(other).substr(end + 1)));
    expect_error<Error>([&] { load_text(other, "damaged"); }, {"damaged"});
  };
  refused("\"n\"", "\"m\"");
  refused("${n}", "${n");
  refused("${n}", "${n*}");
  refused("${n}", "${q}");
  refused("${n}", "${99999999999999999999}");
  refused("${n}", "$n");
  refused("\"least\":[", "\"least\":[7,");
  refused("\"least\":[", "\"least\":\"x\",\"other\":[");
  refused("\"least\":", "\"differ\":[[0]],\"least\":");
  refused("\"least\":", "\"differ\":[[0,1]],\"least\":");
  refused("\"least\":", "\"differ\":[[0,-1]],\"least\":");
  refused("// open ", "// opens ");
}

}  // namespace
}  // namespace postern::test
