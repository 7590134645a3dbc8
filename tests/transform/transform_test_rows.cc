// The table of programs: operations, control flow, rules of one's own, calls, and all of them in
// each other.
#include "transform_test.h"

namespace postern::test {

namespace {

Tensor host(double (*fn)(double), Tensor x) {
  return call(
      x.type(),
      [fn](View<const double> in, View<double> out) {
        for (std::int64_t i = 0; i < in.size(); ++i) out[i] = fn(in[i]);
      },
      x);
}

Tensor host_cos(Tensor x);

/// sin on the host, by custom_jvp; its derivative's derivative too.
Tensor host_sin(Tensor x) {
  static const auto f = custom_jvp(
      [](Tensor v) {
        return host(
            +[](double a) { return std::sin(a); }, v);
      },
      [](std::tuple<Tensor> v, std::tuple<Tensor> t) {
        return std::pair{host_sin(std::get<0>(v)), host_cos(std::get<0>(v)) * std::get<0>(t)};
      });
  return f(x);
}
Tensor host_cos(Tensor x) {
  static const auto f = custom_jvp(
      [](Tensor v) {
        return host(
            +[](double a) { return std::cos(a); }, v);
      },
      [](std::tuple<Tensor> v, std::tuple<Tensor> t) {
        return std::pair{host_cos(std::get<0>(v)), -host_sin(std::get<0>(v)) * std::get<0>(t)};
      });
  return f(x);
}

/// The same by custom_vjp.
Tensor reverse_cos(Tensor x);
Tensor reverse_sin(Tensor x) {
  static const auto f = custom_vjp(
      [](Tensor v) {
        return host(
            +[](double a) { return std::sin(a); }, v);
      },
      [](Tensor v) {
        return std::pair{reverse_sin(v), v};
      },
      [](Tensor v, Tensor ct) { return std::tuple{reverse_cos(v) * ct}; });
  return f(x);
}
Tensor reverse_cos(Tensor x) {
  static const auto f = custom_vjp(
      [](Tensor v) {
        return host(
            +[](double a) { return std::cos(a); }, v);
      },
      [](Tensor v) {
        return std::pair{reverse_cos(v), std::map<std::string, Tensor>{{"x", v}}};
      },
      [](std::map<std::string, Tensor> kept, Tensor ct) {
        return -reverse_sin(kept.at("x")) * ct;
      });
  return f(x);
}

Tensor weights() {
  return tensor<double>({0.5, -1.0, 2.0, 0.3, 0.7, -0.2, 1.5, 0.1, -0.6}, {3, 3});
}

Tensor branches(Tensor x) {
  return cond(
      greater(sum(x), 0.4), [](Tensor v) { return sin(v) * v; },
      [](Tensor v) { return exp(v) + 2.0 * v; }, x);
}

Tensor three_ways(Tensor x) {
  const Tensor index = convert<std::int32_t>(floor(2 * sum(x) + 0.3));
  auto outer = tanh(x);
  return switch_(
      index,
      std::tuple{[](Tensor v) { return v * v; }, [&](Tensor v) { return outer * sin(v); },
                 [](Tensor) {
                   return tensor<double>({1.0, 2.0, 3.0});
                 }},
      x);
}

Tensor recurrence(Tensor x) {
  const auto [last, all] = scan(
      [w = weights()](Tensor h, Tensor v) {
        const Tensor next = tanh(matmul(w, h) + v);
        return std::pair{next, sum(next * h)};
      },
      x, tensor<double>({0.1, 0.2, 0.3, 0.4}));
  return concatenate({last, all});
}

Tensor backwards(Tensor x) {
  const auto [last, all] = scan(
      [x](Tensor h, std::tuple<Tensor, Tensor> v) {
        const Tensor next = sin(h * std::get<0>(v)) + std::get<1>(v) * sum(x);
        return std::pair{next, std::tuple{next, h * h}};
      },
      sum(x * x), std::tuple{x, exp(x)}, {.unroll = 2, .reverse = true});
  return std::get<0>(all) + std::get<1>(all) * last;
}

Tensor only_outputs(Tensor x) {
  return scan(
             [](std::tuple<> none, Tensor v) {
               return std::pair{none, v * exp(v)};
             },
             std::tuple<>(), x)
      .second;
}

Tensor counted_loop(Tensor x) {
  const auto [v, s] = fori_loop(
      2, 6,
      [](Tensor i, Tensor a, Tensor b) {
        const Tensor w = convert<double>(i);
        return std::tuple{sin(a) * w, b + sum(a) / w};
      },
      std::tuple{x, 0.0}, 3);
  return v * s;
}

Tensor until(Tensor x) {
  const auto [v, steps] = while_loop([](Tensor a, Tensor) { return less(sum(a * a), 40.0); },
                                     [](Tensor a, Tensor i) {
                                       return std::tuple{a * 1.7 + sin(a), i + 1};
                                     },
                                     std::tuple{x, 0});
  return v * convert<double>(steps);
}

Tensor nested_loops(Tensor x) {
  return fori_loop(
      0, 3,
      [](Tensor i, Tensor v) {
        return cond(
            equal(i % 2, 0),
            [](Tensor a) {
              return scan(
                         [](Tensor c, Tensor b) {
                           return std::pair{c * 0.5 + sin(b), std::tuple<>()};
                         },
                         a, tensor<double>({0.3, 0.6}))
                  .first;
            },
            [](Tensor a) { return a * a * 0.3 + 1.0; }, v);
      },
      x);
}

Tensor calls_in_loops(Tensor x) {
  return fori_loop(
      0, 3,
      [](Tensor i, Tensor v) {
        return cond(
            less(i, 2), [](Tensor a) { return host_sin(a) * 1.5; },
            [](Tensor a) { return a + host_cos(a); }, v);
      },
      x);
}

Tensor checkpointed(Tensor x) {
  auto block = checkpoint([](Tensor v, Tensor w) { return sin(matmul(w, tanh(v))) * host_sin(v); });
  return block(block(x, weights()), weights());
}

Tensor checkpointed_scan(Tensor x) {
  auto step = checkpoint([](Tensor c, Tensor v) { return sin(c) * exp(0.2 * v) + c * c * 0.1; });
  return scan(
             [&](Tensor c, Tensor v) {
               const Tensor next = step(c, v);
               return std::pair{next, sum(next)};
             },
             x, x)
      .second;
}

Tensor straight_through(Tensor x) {
  static const auto f = custom_jvp(
      [](Tensor v) {
        return std::pair{v * v, sum(v)};
      },
      [](std::tuple<Tensor> v, std::tuple<Tensor> t) {
        const Tensor a = std::get<0>(v), d = std::get<0>(t);
        return std::pair{std::pair{a * a, sum(a)}, std::pair{2.0 * a * d, sum(d)}};
      });
  const auto [squares, total] = f(sin(x));
  return squares * total;
}

Tensor linear(Tensor x) {
  return linear_call(
      [](Tensor w, Tensor v) {
        return call(
            v.type(),
            [](View<const double> a, View<const double> b, View<double> out) {
              for (int i = 0; i < 3; ++i) out[i] = a(i, 0) * b[0] + a(i, 1) * b[1] + a(i, 2) * b[2];
            },
            w, v);
      },
      [](Tensor w, Tensor ct) { return matmul(ct, w); }, weights(), sin(x));
}

Tensor host_square(Tensor x) {
  auto twice = [](View<const double> a, View<const double>, View<const double> ct,
                  View<double> out) {
    for (std::int64_t i = 0; i < a.size(); ++i) out[i] = 2 * a[i] * ct[i];
  };
  // Of (a, y, ct) -> 2 a ct: operands a, y, ct; result; its cotangent; then cotangents of a, y, ct.
  auto again = [](View<const double> a, View<const double>, View<const double> ct,
                  View<const double>, View<const double> up, View<double> to_a, View<double> to_y,
                  View<double> to_ct) {
    for (std::int64_t i = 0; i < a.size(); ++i) {
      to_a[i] = 2 * ct[i] * up[i];
      to_y[i] = 0;
      to_ct[i] = 2 * a[i] * up[i];
    }
  };
  auto third = [](std::span<const AnyView> in, std::span<const AnyMutableView> out) {
    // in: a y ct r up | to_a to_y to_ct | cotangents u v w of these; to_a = 2 ct up, to_ct = 2 a
    // up.
    const auto a = in[0].as<double>(), ct = in[2].as<double>(), up = in[4].as<double>(),
               u = in[8].as<double>(), w = in[10].as<double>();
    for (std::int64_t i = 0; i < a.size(); ++i) {
      out[0].as<double>()[i] = 2 * up[i] * w[i];
      out[1].as<double>()[i] = 0;
      out[2].as<double>()[i] = 2 * up[i] * u[i];
      out[3].as<double>()[i] = 0;
      out[4].as<double>()[i] = 2 * ct[i] * u[i] + 2 * a[i] * w[i];
    }
  };
  return call_with_vjp(
      x.type(),
      [](View<const double> a, View<double> out) {
        for (std::int64_t i = 0; i < a.size(); ++i) out[i] = a[i] * a[i];
      },
      with_vjp(twice, with_vjp(again, third)), sin(x));
}

Tensor inner_gradient(Tensor x) {
  return grad([x](Tensor v) { return sum(sin(v) * v * x); })(x * x);
}

Tensor inner_vmap(Tensor x) {
  return sum(vmap([x](Tensor row, Tensor v) { return tanh(row * v) + x; }, {.in_axes = {0, 0}})(
                 weights(), x),
             {.axes = Dims{1}});
}

Tensor mapped(Tensor x) {
  return map([x](Tensor v) { return v * sum(sin(x * v)); }, x);
}

}  // namespace

std::vector<Row> rows() {
  return {
      {"Plain", [](Tensor x) { return sin(x) * exp(x) + 3.0 * x; }},
      {"Product", [](Tensor x) { return matmul(weights(), tanh(matmul(weights(), x))); }},
      {"Constant",
       [](Tensor) {
         return tensor<double>({1.0, 2.0});
       }},
      {"Identity", [](Tensor x) { return x; }},
      {"Cond", branches},
      {"Switch", three_ways},
      {"Scan", recurrence},
      {"ScanReverse", backwards},
      {"ScanOutputs", only_outputs},
      {"ForiLoop", counted_loop},
      {"While", until, false},
      {"Nested", nested_loops},
      {"CustomJvp", [](Tensor x) { return host_sin(x * x); }},
      {"CustomVjp", [](Tensor x) { return reverse_sin(x * 2.0); }, true, false},
      {"CustomContainers", straight_through},
      {"CallsInLoops", calls_in_loops},
      {"Checkpoint", checkpointed},
      {"CheckpointScan", checkpointed_scan},
      {"LinearCall", linear},
      {"HostVjp", host_square, true, false},
      {"InnerGrad", inner_gradient},
      {"InnerVmap", inner_vmap},
      {"Map", mapped},
  };
}

}  // namespace postern::test
