package daemon

import "testing"

func TestInstructionsSay(t *testing.T) {
	in := NewInstructions(
		"# Money\nAll money is integer cents,\n   never floats. Round half-even!\n\n1. Use   tabs\n- **UTC**\n* never use spaces\n",
		"Tests: run make check.\n> Quoted rule\n")
	for text, want := range map[string]bool{
		"All money is integer cents, never floats":    true,
		"All money  is\ninteger cents, never floats.": true,
		"Round half-even":        true,
		"Use tabs":               true,
		"run make check":         true,
		"Quoted rule":            true,
		"never use spaces.":      true,
		"use spaces":             false, // the opposite is said
		"money is integer cents": false,
		"All money is integer cents, never float": false, // another word
		"all money is integer cents":              false,
		"":                                        false,
		" . ":                                     false,
		"make check.\nQuoted":                     false,
	} {
		if got := in.says(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if (&Instructions{}).says("x") {
		t.Error("no instructions say something")
	}
}
