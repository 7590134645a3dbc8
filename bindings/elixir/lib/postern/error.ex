defmodule Postern.Error do
  @moduledoc """
  What went wrong: `code` is one of the C interface's (`:threw`, `:timeout`, `:cancelled`,
  `:closed`, `:unregistered`, `:bad_result`, `:invalid_argument`, ...), `message` says it in words.

  When a function in this node failed, `cause` is `{kind, reason, stacktrace}`: the terms
  themselves.
  """
  defexception [:code, :message, :cause]

  @type t :: %__MODULE__{
          code: atom,
          message: String.t(),
          cause: nil | {:error | :exit | :throw, term, Exception.stacktrace()}
        }

  @doc false
  def from_nif({:error, code, text, cause}) do
    {:error, %__MODULE__{code: code, message: text, cause: unwrap(cause)}}
  end

  def from_nif(other), do: other

  defp unwrap({:cause, term}), do: term
  defp unwrap(nil), do: nil
end
