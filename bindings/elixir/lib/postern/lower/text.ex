defmodule Postern.Lower.Text do
  @moduledoc false
  # StableHLO text while it is written. What is written so far is in the writing process, so that
  # operations read as formulas of values; a value is {name, type, shape}.
  alias Postern.Lower.Types

  @key {__MODULE__, :state}

  @doc """
  The text of a module whose @main takes `inputs`, a list of {type, shape}, and gives the values
  that `fun` makes of them; and what it noted, in order. Products are as precise as `precision`
  says. `mesh` is {name, sizes, cuts}, of a program over several devices: for each input, by
  dimension, the axes of the mesh that cut it; or nil.
  """
  def module(inputs, precision, mesh, fun) do
    state = %{lines: [], next: 0, token: nil, notes: [], precision: precision}
    before = Process.put(@key, state)

    try do
      arguments = for {type, shape} <- inputs, do: {fresh("arg"), type, shape}
      results = fun.(arguments)

      parameters =
        for {{name, type, shape}, sharding} <- Enum.zip(arguments, shardings(mesh)),
            do: [name, ": ", type(type, shape), sharding]

      types = types(results)
      state = Process.get(@key)

      text = [
        mesh(mesh),
        ["func.func @main(", Enum.intersperse(parameters, ", "), ") -> (", types, ") {\n"],
        Enum.reverse(state.lines),
        ["  return ", operands(results), if(results == [], do: "", else: [" : ", types]), "\n}\n"]
      ]

      {IO.iodata_to_binary(text), Enum.reverse(state.notes)}
    after
      if before, do: Process.put(@key, before), else: Process.delete(@key)
    end
  end

  defp mesh(nil), do: []

  defp mesh({name, sizes, _cuts}) do
    axes = for {size, i} <- Enum.with_index(sizes), do: "\"axis_#{i}\"=#{size}"
    ["sdy.mesh ", symbol(name), " = <[", Enum.intersperse(axes, ", "), "]>\n"]
  end

  # Of each input; the dimensions may be cut further.
  defp shardings(nil), do: Stream.repeatedly(fn -> [] end)

  defp shardings({name, _sizes, cuts}) do
    for dimensions <- cuts do
      dimensions = for axes <- dimensions, do: ["{", Enum.map(axes, &"\"axis_#{&1}\", "), "?}p0"]
      dimensions = Enum.intersperse(dimensions, ", ")
      [" {sdy.sharding = #sdy.sharding<", symbol(name), ", [", dimensions, "]>}"]
    end
  end

  defp symbol(name) do
    name = to_string(name)
    if name =~ ~r/^[A-Za-z_][A-Za-z0-9_$.]*$/, do: ["@", name], else: ["@\"", name, "\""]
  end

  @doc "How precise products are, as an attribute."
  def precision do
    one = "#stablehlo<precision #{Process.get(@key).precision |> to_string() |> String.upcase()}>"
    "[#{one}, #{one}]"
  end

  @doc "Notes something of what is written; its number."
  def note(what) do
    state = Process.get(@key)
    Process.put(@key, %{state | notes: [what | state.notes]})
    length(state.notes)
  end

  ## Operations

  @doc "An operation with one result."
  def op(name, operands, type, shape, attributes \\ [], regions \\ []) do
    [value] = ops(name, operands, [{type, shape}], attributes, regions)
    value
  end

  @doc "One with several."
  def ops(name, operands, results, attributes \\ [], regions \\ []) do
    attributes = for {key, text} <- attributes, do: [to_string(key), " = ", text]

    write(results, [
      [?", name, "\"(", operands(operands), ")"],
      if(regions == [], do: "", else: [" (", Enum.intersperse(regions, ", "), ")"]),
      if(attributes == [], do: "", else: [" {", Enum.intersperse(attributes, ", "), "}"]),
      [" : (", types(operands), ") -> (", result_types(results), ")"]
    ])
  end

  @doc "A custom call: attributes in MLIR's form, `options` beside them."
  def custom_call(target, operands, results, attributes, options \\ []) do
    attributes = for {key, text} <- attributes, do: [key, " = ", text]
    config = ["{", Enum.intersperse(attributes, ", "), "}"]
    options = for {key, text} <- options, do: [", ", to_string(key), " = ", text]

    write(results, [
      [
        "stablehlo.custom_call @\"",
        target,
        "\"(",
        operands(operands),
        ") {api_version = 4 : i32"
      ],
      [", backend_config = ", config, options, "}"],
      [" : (", types(operands), ") -> (", result_types(results), ")"]
    ])
  end

  defp write(results, what) do
    state = Process.get(@key)
    number = Integer.to_string(state.next)

    {left, values} =
      case results do
        [] ->
          {"", []}

        [{type, shape}] ->
          {["%", number, " = "], [{"%" <> number, type, shape}]}

        _ ->
          values =
            for {{type, shape}, i} <- Enum.with_index(results),
                do: {"%#{number}##{i}", type, shape}

          {["%", number, ":", Integer.to_string(length(results)), " = "], values}
      end

    Process.put(@key, %{
      state
      | next: state.next + 1,
        lines: [["  ", left, what, "\n"] | state.lines]
    })

    values
  end

  defp fresh(prefix) do
    state = Process.get(@key)
    Process.put(@key, %{state | next: state.next + 1})
    "%#{prefix}#{state.next}"
  end

  @doc """
  A region whose block takes `arguments`, a list of {type, shape}, and returns the values that `fun`
  makes of them.
  """
  def region(arguments, fun) do
    arguments = for {type, shape} <- arguments, do: {fresh("r"), type, shape}
    outer = Process.get(@key)
    Process.put(@key, %{outer | lines: []})
    results = fun.(arguments)
    inner = Process.get(@key)
    Process.put(@key, %{inner | lines: outer.lines, token: outer.token})
    block = for {name, type, shape} <- arguments, do: [name, ": ", type(type, shape)]

    [
      if(arguments == [], do: "{\n", else: ["{\n  ^bb0(", Enum.intersperse(block, ", "), "):\n"]),
      Enum.reverse(inner.lines),
      ["  stablehlo.return ", operands(results)],
      if(results == [], do: "\n}", else: [" : ", types(results), "\n}"])
    ]
  end

  @doc "What orders effects: the last one's token."
  def token, do: Process.get(@key).token || op("stablehlo.create_token", [], :token, {})
  def token(token), do: Process.put(@key, %{Process.get(@key) | token: token})

  defp operands(values), do: values |> Enum.map(&elem(&1, 0)) |> Enum.intersperse(", ")

  defp types(values),
    do: values |> Enum.map(fn {_, type, shape} -> type(type, shape) end) |> Enum.intersperse(", ")

  defp result_types(results) do
    results |> Enum.map(fn {type, shape} -> type(type, shape) end) |> Enum.intersperse(", ")
  end

  defp type(:token, _shape), do: "!stablehlo.token"

  defp type(type, shape) do
    dims = for dim <- Tuple.to_list(shape), do: [Integer.to_string(dim), "x"]
    ["tensor<", dims, Types.text(type), ">"]
  end

  ## Attributes

  def numbers([]), do: "array<i64>"
  def numbers(list), do: ["array<i64: ", Enum.map_join(list, ", ", &to_string/1), ">"]
  def number(n), do: "#{n} : i64"
  def list(list), do: "[" <> Enum.map_join(list, ", ", &to_string/1) <> "]"

  @doc "Pairs of what is put before and behind each dimension."
  def padding([]), do: "dense<> : tensor<0x2xi64>"

  def padding(pairs) do
    rows = Enum.map_join(pairs, ", ", fn {low, high} -> "[#{low}, #{high}]" end)
    "dense<[#{rows}]> : tensor<#{length(pairs)}x2xi64>"
  end

  ## What most operations need

  @doc "A number, as a tensor of rank 0."
  def constant(number, type) do
    if type in [{:f, 8}, {:f8_e4m3fn, 8}],
      do: convert(constant(number, {:f, 32}), type),
      else: dense(Types.literal(number, type), type, {})
  end

  @doc "The same in every element."
  def fill(number, type, shape), do: broadcast(constant(number, type), shape, [])

  @doc "A tensor of these bytes; elements of less than a byte are packed as Nx does."
  def bytes(data, type, shape) do
    cond do
      Tuple.product(shape) == 0 ->
        dense("", type, shape)

      Types.packed?(type) ->
        dense(nested(unpacked(data, type), Tuple.to_list(shape)), type, shape)

      true ->
        dense(["\"0x", Base.encode16(data), "\""], type, shape)
    end
  end

  defp unpacked(data, {:s, bits}), do: for(<<n::signed-size(bits) <- data>>, do: to_string(n))
  defp unpacked(data, {:u, bits}), do: for(<<n::size(bits) <- data>>, do: to_string(n))

  defp nested([literal], []), do: literal

  defp nested(literals, dims) do
    dims
    |> List.foldr(literals, fn dim, rows ->
      for row <- Enum.chunk_every(rows, dim), do: ["[", Enum.intersperse(row, ", "), "]"]
    end)
    |> hd()
  end

  defp dense(text, type, shape) do
    attribute = ["dense<", text, "> : ", type(type, shape)]
    op("stablehlo.constant", [], type, shape, value: attribute)
  end

  def convert({_, type, _} = value, type), do: value
  def convert({_, _, shape} = value, type), do: op("stablehlo.convert", [value], type, shape)

  def reshape({_, _, shape} = value, shape), do: value
  def reshape({_, type, _} = value, shape), do: op("stablehlo.reshape", [value], type, shape)

  @doc "Its dimensions become these of the result."
  def broadcast({_, type, from} = value, shape, axes) do
    if from == shape and axes == Enum.to_list(0..(tuple_size(shape) - 1)//1) do
      value
    else
      dims = numbers(axes)
      op("stablehlo.broadcast_in_dim", [value], type, shape, broadcast_dimensions: dims)
    end
  end

  @doc "Its dimensions become the last ones, as operands of different ranks meet."
  def spread({_, _, from} = value, shape) do
    first = tuple_size(shape) - tuple_size(from)
    broadcast(value, shape, Enum.to_list(first..(tuple_size(shape) - 1)//1))
  end

  def compare(direction, {_, type, shape} = left, right, order \\ "FLOAT") do
    kind = if Types.float?(type) or Types.complex?(type), do: order

    attributes =
      [comparison_direction: "#stablehlo<comparison_direction #{direction}>"] ++
        if(kind, do: [compare_type: "#stablehlo<comparison_type #{kind}>"], else: [])

    op("stablehlo.compare", [left, right], :pred, shape, attributes)
  end

  def select(predicate, {_, type, shape} = on_true, on_false) do
    op("stablehlo.select", [predicate, on_true, on_false], type, shape)
  end
end
