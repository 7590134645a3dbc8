defmodule Postern.Backend do
  @moduledoc """
  Tensors of Nx where the library has them: results of `Postern.Defn`, and what is transferred.

      Nx.default_backend(Postern.Backend)
      x = Nx.backend_transfer(x, Postern.Backend)

  Their memory is the library's own, which binaries show without a copy. Each operation is a small
  program, compiled once for its types; `defn` makes one of many.

  Options: `:device`, on which its operations run, 0 unless given: the first operand's counts.
  """
  # Nx is optional, so its behaviour is not named.
  @compile {:no_warn_undefined, [Nx, Nx.BinaryBackend, Nx.Defn, Nx.Defn.Expr]}
  @enforce_keys [:tensor]
  defstruct [:tensor, device: 0]

  alias Postern.Defn.Values
  alias Postern.Lower.Types
  alias Postern.Tensor

  @doc false
  def init(options) do
    Postern.Options.refuse_others(options, [:device, :device_id, :client], "Postern.Backend")
    options
  end

  ## In and out

  @doc false
  def from_binary(%{type: type, shape: shape} = out, binary, options) do
    tensor = %Tensor{type: Types.name(type), shape: shape, data: Values.spread(binary, type)}
    %{out | data: %__MODULE__{tensor: tensor, device: device(options)}}
  end

  @doc false
  def constant(out, number, options),
    do: from_binary(out, Nx.BinaryBackend.constant(out, number, []).data.state, options)

  @doc false
  def to_binary(%{type: {_, bits} = type, data: %{tensor: tensor}}, limit) do
    tensor.data
    |> binary_part(0, min(limit * div(max(bits, 8), 8), byte_size(tensor.data)))
    |> Values.packed(type)
  end

  @doc false
  def backend_copy(tensor, __MODULE__, options),
    do: put_in(tensor.data.device, device(options))

  def backend_copy(tensor, backend, options),
    do: backend.from_binary(tensor, to_binary(tensor, Nx.size(tensor)), options)

  # Nobody can change a tensor, so it need not be copied.
  @doc false
  def backend_transfer(tensor, backend, options), do: backend_copy(tensor, backend, options)

  # Its memory goes when nothing shows it any more.
  @doc false
  def backend_deallocate(_tensor), do: :ok

  @doc false
  def to_batched(out, tensor, options) do
    batches = Nx.BinaryBackend.to_batched(out, binary(tensor), options)
    options = [device: tensor.data.device]
    Stream.map(batches, &Nx.backend_transfer(&1, {__MODULE__, options}))
  end

  @doc false
  def inspect(tensor, options), do: Nx.BinaryBackend.inspect(binary(tensor), options)

  defp binary(%{data: %{tensor: tensor}} = whole), do: Values.to_binary_backend(tensor, whole)

  for {name, arity} <- [from_pointer: 5, to_pointer: 2] do
    arguments = Macro.generate_arguments(arity, __MODULE__)
    @doc false
    def unquote(name)(unquote_splicing(arguments)) do
      _ = unquote(arguments)

      raise ArgumentError,
            "#{unquote(name)} is not for tensors of Postern: binaries show them without a copy"
    end
  end

  defp device(options), do: options[:device] || options[:device_id] || 0

  ## Operations

  # With how many arguments, the result's template among them.
  @operations %{
    2 =>
      [:exp, :expm1, :log, :log1p, :sigmoid, :cos, :sin, :tan, :cosh, :sinh, :tanh, :acos, :asin] ++
        [:atan, :acosh, :asinh, :atanh, :sqrt, :rsqrt, :cbrt, :negate, :sign, :abs, :bitwise_not] ++
        [:is_nan, :is_infinity, :conjugate, :population_count, :count_leading_zeros, :floor] ++
        [:ceil, :round, :erf, :erfc, :erf_inv, :real, :imag, :as_type, :bitcast, :reshape, :eye],
    3 =>
      [:add, :subtract, :multiply, :divide, :pow, :remainder, :atan2, :min, :max, :quotient] ++
        [:bitwise_and, :bitwise_or, :bitwise_xor, :left_shift, :right_shift, :equal, :not_equal] ++
        [:greater, :less, :greater_equal, :less_equal, :logical_and, :logical_or, :logical_xor] ++
        [:squeeze, :transpose, :reverse, :all, :any, :sum, :product, :reduce_max, :reduce_min] ++
        [:argmax, :argmin, :concatenate, :stack, :sort, :argsort, :fft, :ifft, :iota],
    4 =>
      [:broadcast, :pad, :clip, :gather, :select, :conv, :put_slice, :triangular_solve] ++
        [:window_sum, :window_product, :window_max, :window_min],
    5 => [:slice, :reduce, :indexed_add, :indexed_put],
    6 => [:window_reduce, :window_scatter_max, :window_scatter_min],
    7 => [:dot]
  }

  @doc false
  def operations, do: @operations

  for {arity, names} <- @operations, name <- names do
    [out | arguments] = Macro.generate_arguments(arity, __MODULE__)
    @doc false
    def unquote(name)(unquote(out), unquote_splicing(arguments)),
      do: compute(unquote(name), unquote(out), unquote(arguments))
  end

  @doc false
  def block(struct, _out, arguments, fun) do
    {tensors, options} = Enum.split_while(arguments, &is_struct(&1, Nx.Tensor))
    jit(&Nx.Defn.Expr.block(struct, Tuple.to_list(&1) ++ options, fun), tensors)
  end

  # The tensors are the program's arguments; all else is a part of it.
  defp compute(name, out, arguments) do
    out = Nx.to_template(out)
    {holes, {_, tensors}} = Enum.map_reduce(arguments, {0, []}, &hole/2)
    jit(&apply(Nx.Defn.Expr, name, [out | fill(holes, &1)]), Enum.reverse(tensors))
  end

  defp hole(%{__struct__: Nx.Tensor} = tensor, {i, tensors}),
    do: {{__MODULE__, i}, {i + 1, [tensor | tensors]}}

  defp hole(list, found) when is_list(list), do: Enum.map_reduce(list, found, &hole/2)
  defp hole(other, found), do: {other, found}

  defp fill({__MODULE__, i}, tensors), do: elem(tensors, i)
  defp fill(list, tensors) when is_list(list), do: Enum.map(list, &fill(&1, tensors))
  defp fill(other, _tensors), do: other

  defp jit(fun, tensors) do
    device = Enum.find_value(tensors, 0, &on(&1.data))
    options = [compiler: Postern.Defn, on_conflict: :force, device: device]
    Nx.Defn.jit_apply(fun, [List.to_tuple(tensors)], options)
  end

  defp on(%__MODULE__{device: device}), do: device
  defp on(_other), do: nil
end
