// What the tests over processes share. Every process of an mpirun runs the same tests; one started
// alone is a cluster of one.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <postern/postern.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace postern::test {

using namespace std::chrono_literals;

inline int rank() { return cluster().rank; }
inline int size() { return cluster().size; }
inline Mesh hosts() { return Mesh({{"host", processes}}); }

/// Numbers that are all different, small enough for sums of two bytes' integers.
inline Tensor counting(Dims dims, DType dtype = DType::f32) {
  const std::int64_t n = make_type(DType::f32, dims).size();
  return convert(reshape(iota<float>(n), std::move(dims)), dtype);
}

/// The same numbers, and of the same type. Of what lies over processes the whole: all must ask.
inline void expect_same(const Tensor& got, const Tensor& want, double tolerance = 0) {
  ASSERT_EQ(to_string(got.type()), to_string(want.type()));
  const auto numbers = [](const Tensor& t) {
    return convert(collect(t), DType::f64).to_vector<double>();
  };
  const auto a = numbers(got), b = numbers(want);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double apart = std::abs(a[i] - b[i]);
    ASSERT_LE(apart, tolerance * (1 + std::abs(b[i]))) << "element " << i;
  }
}

using Function = std::function<Tensor(Tensor)>;

/// f on one element, by each process on its own, and under vmap by all of them in this one.
inline Function over_hosts(const Function& f) {
  const auto one = [f](Tensor part) { return expand_dims(f(squeeze(part, {0})), 0); };
  const auto all = shard_map(one, hosts(), {.in = {P("host")}, .out = {P("host")}});
  return [all](Tensor x) { return collect(all(x)); };
}
inline Function over_vmap(const Function& f) { return vmap(f, {.axis_name = "host"}); }

/// The text of the TypeError that `act` throws; "" when it does not.
inline std::string refusal_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const TypeError& e) {
    return e.what();
  }
  return "";
}
inline void expect_says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// The text that `act` throws, of a CallbackError; "" when it does not.
inline std::string failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const CallbackError& e) {
    return e.what();
  }
  return "";
}

}  // namespace postern::test
