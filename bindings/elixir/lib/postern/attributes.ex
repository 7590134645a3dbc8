defmodule Postern.Attributes do
  @moduledoc false
  # Attributes as the C interface has them: JSON in which each has its type,
  # {"factor": {"double": "3"}}. The VM's standard library reads no JSON.

  @doc "A map of names to numbers, texts, booleans and lists."
  def parse(text) do
    {map, rest} = value(skip(text))
    "" = skip(rest)
    Map.new(map, fn {name, [{kind, value}]} -> {name, typed(kind, value)} end)
  end

  # Doubles are texts, so that infinities and nan can be told.
  defp typed(kind, values) when is_list(values), do: Enum.map(values, &typed(kind, &1))

  defp typed(kind, text) when is_binary(text) do
    if String.contains?(kind, "double"), do: double(text), else: text
  end

  defp typed(_kind, value), do: value

  defp double(text) when text in ["inf", "infinity"], do: :infinity
  defp double(text) when text in ["-inf", "-infinity"], do: :neg_infinity

  defp double(text) do
    case Float.parse(text) do
      {number, ""} -> number
      _ -> :nan
    end
  end

  defp value("{" <> rest), do: members(skip(rest), [])
  defp value("[" <> rest), do: elements(skip(rest), [])
  defp value("\"" <> rest), do: string(rest, [])
  defp value("true" <> rest), do: {true, rest}
  defp value("false" <> rest), do: {false, rest}
  defp value("null" <> rest), do: {nil, rest}

  defp value(text) do
    [digits] = Regex.run(~r/^-?[0-9.eE+-]+/, text)
    rest = binary_part(text, byte_size(digits), byte_size(text) - byte_size(digits))

    case Integer.parse(digits) do
      {number, ""} -> {number, rest}
      _ -> {double(digits), rest}
    end
  end

  defp members("}" <> rest, done), do: {Enum.reverse(done), rest}
  defp members("," <> rest, done), do: members(skip(rest), done)

  defp members("\"" <> rest, done) do
    {name, rest} = string(rest, [])
    ":" <> rest = skip(rest)
    {value, rest} = value(skip(rest))
    members(skip(rest), [{name, value} | done])
  end

  defp elements("]" <> rest, done), do: {Enum.reverse(done), rest}
  defp elements("," <> rest, done), do: elements(skip(rest), done)

  defp elements(text, done) do
    {value, rest} = value(text)
    elements(skip(rest), [value | done])
  end

  defp string("\"" <> rest, done), do: {IO.iodata_to_binary(Enum.reverse(done)), rest}
  defp string("\\n" <> rest, done), do: string(rest, ["\n" | done])
  defp string("\\t" <> rest, done), do: string(rest, ["\t" | done])
  defp string("\\r" <> rest, done), do: string(rest, ["\r" | done])
  defp string("\\b" <> rest, done), do: string(rest, ["\b" | done])
  defp string("\\f" <> rest, done), do: string(rest, ["\f" | done])

  defp string("\\u" <> <<high::binary-4, "\\u", low::binary-4, rest::binary>>, done)
       when high >= "D800" and high < "DC00" do
    {:ok, units} = Base.decode16(high <> low, case: :mixed)
    string(rest, [:unicode.characters_to_binary(units, {:utf16, :big}) | done])
  end

  defp string("\\u" <> <<code::binary-4, rest::binary>>, done) do
    string(rest, [<<String.to_integer(code, 16)::utf8>> | done])
  end

  defp string("\\" <> <<character::utf8, rest::binary>>, done) do
    string(rest, [<<character::utf8>> | done])
  end

  defp string(<<character::utf8, rest::binary>>, done) do
    string(rest, [<<character::utf8>> | done])
  end

  defp skip(<<space, rest::binary>>) when space in ~c" \n\t\r", do: skip(rest)
  defp skip(text), do: text
end
