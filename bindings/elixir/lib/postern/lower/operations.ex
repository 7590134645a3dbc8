defmodule Postern.Lower.Operations do
  @moduledoc false
  # The table of operations: what an expression's node is written by. Nodes that are more than an
  # operation on values (control flow, blocks, what calls back) are Postern.Lower's.
  alias Postern.Lower.{Elementwise, Products, Reducing, Shaping}

  @stablehlo [
    exp: "exponential",
    expm1: "exponential_minus_one",
    log: "log",
    log1p: "log_plus_one",
    sigmoid: "logistic",
    cos: "cosine",
    sin: "sine",
    tanh: "tanh",
    sqrt: "sqrt",
    rsqrt: "rsqrt",
    cbrt: "cbrt",
    negate: "negate",
    floor: "floor",
    ceil: "ceil",
    round: "round_nearest_afz",
    bitwise_not: "not",
    count_leading_zeros: "count_leading_zeros",
    population_count: "popcnt"
  ]

  @chlo [:tan, :cosh, :sinh, :acos, :asin, :atan, :acosh, :asinh, :atanh, :erf, :erfc, :erf_inv]

  @binary [
    add: "add",
    subtract: "subtract",
    multiply: "multiply",
    divide: "divide",
    pow: "power",
    min: "minimum",
    max: "maximum",
    remainder: "remainder",
    atan2: "atan2",
    bitwise_and: "and",
    bitwise_or: "or",
    bitwise_xor: "xor",
    left_shift: "shift_left"
  ]

  @comparisons [
    equal: "EQ",
    not_equal: "NE",
    less: "LT",
    less_equal: "LE",
    greater: "GT",
    greater_equal: "GE"
  ]

  @logical [logical_and: "and", logical_or: "or", logical_xor: "xor"]

  @table Map.new(
           for({op, name} <- @stablehlo, do: {op, {Elementwise, :unary, "stablehlo." <> name}}) ++
             for(op <- @chlo, do: {op, {Elementwise, :chlo, to_string(op)}}) ++
             for({op, name} <- @binary, do: {op, {Elementwise, :binary, "stablehlo." <> name}}) ++
             for({op, way} <- @comparisons, do: {op, {Elementwise, :comparison, way}}) ++
             for(
               {op, name} <- @logical,
               do: {op, {Elementwise, :logical, "stablehlo." <> name}}
             ) ++
             [
               constant: {Elementwise, :constant, nil},
               tensor: {Elementwise, :tensor, nil},
               abs: {Elementwise, :abs, nil},
               sign: {Elementwise, :sign, nil},
               real: {Elementwise, :part, "stablehlo.real"},
               imag: {Elementwise, :part, "stablehlo.imag"},
               conjugate: {Elementwise, :conjugate, nil},
               is_nan: {Elementwise, :nan?, nil},
               is_infinity: {Elementwise, :infinite?, nil},
               as_type: {Elementwise, :as_type, nil},
               bitcast: {Elementwise, :bitcast, nil},
               quotient: {Elementwise, :quotient, nil},
               right_shift: {Elementwise, :right_shift, nil},
               select: {Elementwise, :choose, nil},
               clip: {Elementwise, :clip, nil},
               iota: {Shaping, :iota, nil},
               eye: {Shaping, :eye, nil},
               reshape: {Shaping, :reshape, nil},
               squeeze: {Shaping, :reshape, nil},
               broadcast: {Shaping, :broadcast_to, nil},
               transpose: {Shaping, :transpose, nil},
               reverse: {Shaping, :reverse, nil},
               pad: {Shaping, :pad, nil},
               concatenate: {Shaping, :concatenate, nil},
               stack: {Shaping, :stack, nil},
               slice: {Shaping, :slice, nil},
               put_slice: {Shaping, :put_slice, nil},
               gather: {Shaping, :gather, nil},
               indexed_add: {Shaping, :scatter, :add},
               indexed_put: {Shaping, :scatter, :put},
               sum: {Reducing, :aggregate, {"stablehlo.add", 0}},
               product: {Reducing, :aggregate, {"stablehlo.multiply", 1}},
               reduce_max: {Reducing, :aggregate, {"stablehlo.maximum", :least}},
               reduce_min: {Reducing, :aggregate, {"stablehlo.minimum", :greatest}},
               all: {Reducing, :truths, {"stablehlo.and", 1}},
               any: {Reducing, :truths, {"stablehlo.or", 0}},
               reduce: {Reducing, :reduce, nil},
               argmax: {Reducing, :index_of, :greatest},
               argmin: {Reducing, :index_of, :least},
               window_sum: {Reducing, :window_aggregate, {"stablehlo.add", 0}},
               window_product: {Reducing, :window_aggregate, {"stablehlo.multiply", 1}},
               window_max: {Reducing, :window_aggregate, {"stablehlo.maximum", :least}},
               window_min: {Reducing, :window_aggregate, {"stablehlo.minimum", :greatest}},
               window_reduce: {Reducing, :window_reduce, nil},
               window_scatter_max: {Reducing, :window_scatter, "GT"},
               window_scatter_min: {Reducing, :window_scatter, "LT"},
               sort: {Reducing, :sort, nil},
               argsort: {Reducing, :argsort, nil},
               dot: {Products, :dot, nil},
               conv: {Products, :conv, nil},
               fft: {Products, :fft, "FFT"},
               ifft: {Products, :fft, "IFFT"},
               triangular_solve: {Products, :triangular_solve, nil}
             ]
         )

  @doc "The names of all."
  def names, do: @table |> Map.keys() |> Enum.sort()

  @doc "Writes one; `arguments` are the node's, with values where it has nodes."
  def write(name, arguments, out) do
    case @table do
      %{^name => {module, function, parameter}} ->
        apply(module, function, [arguments, out, parameter])

      _ ->
        raise ArgumentError, "Postern has no operation #{inspect(name)}"
    end
  end
end
