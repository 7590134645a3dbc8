// What torch.autograd.gradcheck and gradgradcheck do, which torch's C++ does not have: derivatives
// of doubles by central differences with a step of 1e-6 beside those of autograd, 1e-3 relative and
// 1e-5 absolute; that autograd's are the same twice, zero for zero cotangents, and linear in each
// result's alone. Complex numbers are taken as pairs of real ones.
#pragma once
#include <gtest/gtest.h>
#include <postern/torch.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

namespace gradcheck {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

inline Function function(const postern::torch::Module& m) {
  return [m](const Tensors& x) { return m.run(x); };
}
inline at::Tensor doubles(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

/// f of real numbers.
inline Function real_form(const Function& f, const Tensors& inputs) {
  std::vector<bool> complex;
  for (const at::Tensor& t : inputs) complex.push_back(t.is_complex());
  return [f, complex](const Tensors& x) {
    Tensors in, out;
    for (std::size_t i = 0; i < x.size(); ++i)
      in.push_back(complex[i] ? at::view_as_complex(x[i]) : x[i]);
    for (const at::Tensor& y : f(in)) out.push_back(y.is_complex() ? at::view_as_real(y) : y);
    return out;
  };
}
inline Tensors real_parts(const Tensors& inputs) {
  Tensors out;
  for (const at::Tensor& t : inputs)
    out.push_back((t.is_complex() ? at::view_as_real(t.detach()).clone() : t.detach().clone()));
  return out;
}

/// For each result and each float input the derivative as a matrix.
inline std::vector<Tensors> numerical(const Function& f, const Tensors& inputs) {
  constexpr double step = 1e-6;
  std::vector<Tensors> all;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_floating_point()) continue;
    std::vector<Tensors> columns;  // by result
    for (std::int64_t j = 0; j < inputs[i].numel(); ++j) {
      const auto at = [&](double by) {
        Tensors x = inputs;
        x[i] = x[i].clone();
        x[i].view(-1)[j] += by;
        const at::NoGradGuard none;
        return f(x);
      };
      const Tensors up = at(step), down = at(-step);
      columns.resize(up.size());
      for (std::size_t r = 0; r < up.size(); ++r)
        if (up[r].is_floating_point())
          columns[r].push_back(((up[r] - down[r]) / (2 * step)).reshape(-1));
    }
    all.resize(columns.size());
    for (std::size_t r = 0; r < columns.size(); ++r)
      if (!columns[r].empty()) all[r].push_back(at::stack(columns[r], 1));
  }
  return all;
}

inline std::vector<Tensors> analytical(const Function& f, const Tensors& inputs) {
  Tensors x, leaves;
  for (const at::Tensor& t : inputs) {
    x.push_back(t.detach().clone());
    if (t.is_floating_point()) leaves.push_back(x.back().requires_grad_(true));
  }
  const Tensors y = f(x);
  std::vector<Tensors> all(y.size());
  for (std::size_t r = 0; r < y.size(); ++r) {
    if (!y[r].is_floating_point()) continue;
    std::vector<Tensors> rows(leaves.size());
    for (std::int64_t k = 0; k < y[r].numel(); ++k) {
      at::Tensor ct = at::zeros_like(y[r]).contiguous();
      ct.view(-1)[k] = 1;
      const Tensors g = torch::autograd::grad({y[r]}, leaves, {ct}, true, false, true);
      for (std::size_t i = 0; i < leaves.size(); ++i)
        rows[i].push_back((g[i].defined() ? g[i] : at::zeros_like(leaves[i])).reshape(-1));
    }
    for (const Tensors& of : rows) all[r].push_back(at::stack(of));
    const Tensors none =
        torch::autograd::grad({y[r]}, leaves, {at::zeros_like(y[r])}, true, false, true);
    for (const at::Tensor& g : none)
      EXPECT_TRUE(!g.defined() || !g.any().item<bool>()) << "not zero for zero";
  }
  return all;
}

inline void first(const Function& f, const Tensors& inputs) {
  const Function real = real_form(f, inputs);
  const Tensors x = real_parts(inputs);
  const auto n = numerical(real, x), a = analytical(real, x), again = analytical(real, x);
  ASSERT_EQ(n.size(), a.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    ASSERT_EQ(n[r].size(), a[r].size());
    for (std::size_t i = 0; i < a[r].size(); ++i) {
      EXPECT_TRUE(at::allclose(a[r][i], n[r][i], 1e-3, 1e-5))
          << "result " << r << ", input " << i << ":\n"
          << a[r][i] << "\n"
          << n[r][i];
      EXPECT_TRUE(at::equal(a[r][i], again[r][i])) << "not the same twice";
    }
  }
}

/// Of the derivative, by inputs and cotangents.
inline void second(const Function& f, const Tensors& inputs) {
  const Function real = real_form(f, inputs);
  Tensors x = real_parts(inputs);
  const std::size_t count = x.size();
  torch::manual_seed(11);
  for (const at::Tensor& y : real(x))
    if (y.is_floating_point()) x.push_back(at::randn(y.sizes(), y.options()));
  const auto derivative = [real, count](const Tensors& all) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(count);
    Tensors in(all.begin(), middle), leaves, y;
    const Tensors ct(middle, all.end());
    for (at::Tensor& t : in) {
      if (!t.is_floating_point()) continue;
      if (!t.requires_grad()) t = t.detach().clone().requires_grad_(true);
      leaves.push_back(t);
    }
    const at::AutoGradMode with_graph(true);
    for (const at::Tensor& t : real(in))
      if (t.is_floating_point()) y.push_back(t);
    Tensors g = torch::autograd::grad(y, leaves, ct, true, true, true);
    for (std::size_t i = 0; i < g.size(); ++i)
      if (!g[i].defined()) g[i] = at::zeros_like(leaves[i]);
    return g;
  };
  first(derivative, x);
}

inline void both(const Function& f, const Tensors& inputs) {
  first(f, inputs);
  second(f, inputs);
}

}  // namespace gradcheck
