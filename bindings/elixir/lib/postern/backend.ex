if Code.ensure_loaded?(Nx.Backend) do
  defmodule Postern.Backend do
    @moduledoc """
    Tensors of Nx where the library has them: results of `Postern.Defn`, and what is transferred.

        Nx.default_backend(Postern.Backend)
        x = Nx.backend_transfer(x, Postern.Backend)

    Their memory is the library's own, which binaries show without a copy. Each operation is a small
    program, compiled once for its types; `defn` makes one of many.

    Options: `:device`, on which its operations run, 0 unless given: the first operand's counts.
    """
    @behaviour Nx.Backend
    @enforce_keys [:tensor]
    defstruct [:tensor, device: 0]

    alias Nx.Tensor, as: T
    alias Postern.Defn.Values
    alias Postern.Lower.Types
    alias Postern.Tensor

    @impl true
    def init(options), do: Keyword.validate!(options, [:device, :device_id, :client])

    ## In and out

    @impl true
    def from_binary(%T{type: type, shape: shape} = out, binary, options) do
      tensor = %Tensor{type: Types.name(type), shape: shape, data: Values.spread(binary, type)}
      %{out | data: %__MODULE__{tensor: tensor, device: device(options)}}
    end

    @impl true
    def constant(out, number, options),
      do: from_binary(out, Nx.BinaryBackend.constant(out, number, []).data.state, options)

    @impl true
    def to_binary(%T{type: {_, bits} = type, data: %{tensor: tensor}}, limit) do
      tensor.data
      |> binary_part(0, min(limit * div(max(bits, 8), 8), byte_size(tensor.data)))
      |> Values.packed(type)
    end

    @impl true
    def backend_copy(tensor, __MODULE__, options),
      do: put_in(tensor.data.device, device(options))

    def backend_copy(tensor, backend, options),
      do: backend.from_binary(tensor, to_binary(tensor, Nx.size(tensor)), options)

    # Nobody can change a tensor, so it need not be copied.
    @impl true
    def backend_transfer(tensor, backend, options), do: backend_copy(tensor, backend, options)

    # Its memory goes when nothing shows it any more.
    @impl true
    def backend_deallocate(_tensor), do: :ok

    @impl true
    def to_batched(out, tensor, options) do
      batches = Nx.BinaryBackend.to_batched(out, binary(tensor), options)
      options = [device: tensor.data.device]
      Stream.map(batches, &Nx.backend_transfer(&1, {__MODULE__, options}))
    end

    @impl true
    def inspect(tensor, options), do: Nx.BinaryBackend.inspect(binary(tensor), options)

    defp binary(%T{data: %{tensor: tensor}} = whole), do: Values.to_binary_backend(tensor, whole)

    for {name, arity} <- [from_pointer: 5, to_pointer: 2] do
      arguments = Macro.generate_arguments(arity, __MODULE__)
      @impl true
      def unquote(name)(unquote_splicing(arguments)) do
        _ = unquote(arguments)

        raise ArgumentError,
              "#{unquote(name)} is not for tensors of Postern: binaries show them without a copy"
      end
    end

    defp device(options), do: options[:device] || options[:device_id] || 0

    ## Operations

    others =
      [init: 1, from_binary: 3, constant: 3, to_binary: 2, backend_copy: 3] ++
        [backend_transfer: 3, backend_deallocate: 1, to_batched: 3, inspect: 2] ++
        [from_pointer: 5, to_pointer: 2, block: 4, optional: 3]

    for {name, arity} <- Nx.Backend.behaviour_info(:callbacks) -- others do
      [out | arguments] = Macro.generate_arguments(arity, __MODULE__)
      @impl true
      def unquote(name)(unquote(out), unquote_splicing(arguments)),
        do: compute(unquote(name), unquote(out), unquote(arguments))
    end

    if {:block, 4} in Nx.Backend.behaviour_info(:callbacks) do
      @impl true
      def block(struct, _out, arguments, fun) do
        {tensors, options} = Enum.split_while(arguments, &is_struct(&1, T))
        jit(&Nx.Defn.Expr.block(struct, Tuple.to_list(&1) ++ options, fun), tensors)
      end
    end

    # The tensors are the program's arguments; all else is a part of it.
    defp compute(name, out, arguments) do
      out = Nx.to_template(out)
      {holes, {_, tensors}} = Enum.map_reduce(arguments, {0, []}, &hole/2)
      jit(&apply(Nx.Defn.Expr, name, [out | fill(holes, &1)]), Enum.reverse(tensors))
    end

    defp hole(%T{} = tensor, {i, tensors}), do: {{__MODULE__, i}, {i + 1, [tensor | tensors]}}
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
end
